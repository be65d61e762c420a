"""The core with the words of the verbs API: context, memory region, completion queue, queue pair.

What `ibv_open_device`, `ibv_reg_mr`, `ibv_create_cq`, `ibv_create_qp`, `ibv_modify_qp`,
`ibv_post_send`, `ibv_post_recv` and `ibv_poll_cq` do with an RDMA NIC, this does with the sans-IO
core:

    region = context.reg_mr(bytearray(4096))
    cq = context.create_cq()
    qp = context.create_qp(cq)
    qp.modify(QpState.INIT)
    qp.modify(QpState.RTR, peer)                       # `peer` is the `qp.local` of the other end
    qp.modify(QpState.RTS)
    qp.post_write_imm(7, b"hello", remote_va, rkey, immediate=1)
    cq.poll()

The operations are those of MRC: WRITE and WRITE with immediate, which consumes a posted receive at
the peer. EV and CC profiles have the names of the OCP MRC API.

Like the rest of the core a context does no I/O: whoever owns its sockets calls `receive`,
`transmit` and `next_deadline` (`testbed/emulation/endpoint/device.py`).
"""

from testbed.mrc.config import PortAttributes
from testbed.mrc.verbs.context import Context, PeerPaths
from testbed.mrc.verbs.queue_pair import (
    CompletionQueue,
    Destination,
    QpAttributes,
    VerbsQp,
    WcOpcode,
    WorkCompletion,
)

__all__ = [
    "CompletionQueue",
    "Context",
    "Destination",
    "PeerPaths",
    "PortAttributes",
    "QpAttributes",
    "VerbsQp",
    "WcOpcode",
    "WorkCompletion",
]
