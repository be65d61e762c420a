"""Ten lines of RDMA between two hosts: `h4 python examples/hello.py &`, `h0 python ... h4`."""

import sys

from testbed.rdma import meet, open_device, plain_errors

with plain_errors(), open_device() as device, meet(device, *sys.argv[1:]) as peer:
    cq = device.create_cq()
    qp = device.create_qp(cq)
    memory = device.reg_mr(bytearray(64))
    qp.post_recv(0)
    remote = peer.connect([qp], memory)
    if peer.is_client:
        qp.post_write_imm(1, b"hello over MRC", remote.va, remote.rkey, immediate=42)
    (done,) = device.wait(cq)
    print(
        device.host.name, done.opcode, done.status.value, done.imm_data, bytes(memory.buffer[:14])
    )
