"""What a path selector or a congestion controller of one's own is given: docs/algorithms.md.

What is listed in `__all__` is the interface; where it is defined may change.
"""

from testbed.host.own_code import CcPath
from testbed.mrc import EvInfo, EvState, LossReport, SackReport

__all__ = ["CcPath", "EvInfo", "EvState", "LossReport", "SackReport"]
