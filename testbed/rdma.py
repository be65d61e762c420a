"""RDMA for Python programs in a host of a live fabric: docs/rdma.md.

    from testbed.rdma import meet, open_device

What is listed in `__all__` is the interface; where it is defined may change.
"""

from testbed.emulation.endpoint.device import open_device, plain_errors
from testbed.emulation.endpoint.rendezvous import meet
from testbed.mrc.verbs import QpAttributes

__all__ = ["QpAttributes", "meet", "open_device", "plain_errors"]
