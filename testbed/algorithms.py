"""What a path selector or a congestion controller of one's own is given: docs/algorithms.md.

What is listed in `__all__` is the interface; where it is defined may change.
"""

from typing import Any

from testbed.host.own_class import Ports, Record
from testbed.host.own_code import CcPath
from testbed.mrc import EvInfo, EvState, LossReport, SackReport

__all__ = ["CcPath", "Duration", "EvInfo", "EvState", "LossReport", "Ports", "Record", "SackReport"]

Duration = Any
"""The type of a parameter that is a time.

A scenario, or the parameter's default, gives it as text with a unit, in real time or in base RTTs:
`10 us`, `2 RTT`. The class gets it in ns of the clock of the run, as an int.
"""
