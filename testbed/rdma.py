"""RDMA for Python programs in a host of a fabric: docs/rdma.md.

    from testbed.rdma import meet, open_device

What is listed in `__all__` is the interface; where it is defined may change.
"""

from testbed.device.client import open_device, plain_errors
from testbed.device.rendezvous import meet
from testbed.mrc.qp import QpState, QpStateError
from testbed.mrc.verbs import QpAttributes

__all__ = ["QpAttributes", "QpState", "QpStateError", "meet", "open_device", "plain_errors"]
