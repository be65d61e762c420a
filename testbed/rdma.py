"""RDMA for Python programs in a host of a fabric: docs/rdma.md.

    from testbed.rdma import meet, open_device

What is listed in `__all__` is the interface; where it is defined may change.
"""

from testbed.device.client import open_device, plain_errors
from testbed.device.rendezvous import meet
from testbed.mrc.config import Capabilities
from testbed.mrc.message import CompletionStatus
from testbed.mrc.qp import QpState, QpStateError
from testbed.mrc.verbs import Destination, QpAttributes, WcOpcode

__all__ = [
    "Capabilities",
    "CompletionStatus",
    "Destination",
    "QpAttributes",
    "QpState",
    "QpStateError",
    "WcOpcode",
    "meet",
    "open_device",
    "plain_errors",
]
