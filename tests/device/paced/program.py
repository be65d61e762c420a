"""A host's program in the tests: `python -P -m tests.device.paced.program WHAT`, as one in C.

It opens the device by the library that NCCL would load, and meets its peer by name.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testbed.device.client import open_device
from testbed.mrc.verbs import Destination, QpAttributes
from tests.device.verbs import End, content, fill

RANK = int(os.environ["RANK"])
NAMES = [entry.partition("=")[0] for entry in os.environ["MRC_HOSTS"].split(",")]
SIZE = 40_000
PORT = 18_515
MESSAGE = 256


def say(*words: str) -> None:
    """Print, at once."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def met() -> socket.socket:
    """A connection between the first two hosts; the second calls the first by its name."""
    if RANK == 0:
        with socket.create_server(("", PORT)) as server:
            return server.accept()[0]
    while True:
        try:
            return socket.create_connection((NAMES[0], PORT))
        except ConnectionRefusedError:
            time.sleep(0.05)


def tell(peer: socket.socket, value: Any) -> Any:
    """Send a value and return the peer's."""
    peer.sendall(json.dumps(value).encode().ljust(MESSAGE))
    return json.loads(peer.recv(MESSAGE, socket.MSG_WAITALL))


def write(count: int = 100) -> None:
    """The second host writes to the first, which looks at what has arrived."""
    end = End(Path(os.environ["NCCL_IBVERBS_LIB"]))
    qp = end.make_qp()
    with met() as peer:
        number = qp.contents.qp_num
        other = tell(peer, [end.gid.hex(), number, end.va, end.mr.contents.rkey])
        end.connect(qp, bytes.fromhex(other[0]), other[1])
        tell(peer, "connected")
        for i in range(count if RANK == 1 else 0):
            fill(end, bytes([i % 251]) * SIZE)
            assert end.post(qp, i, (other[2], other[3]), SIZE) == 0
            (done,) = end.wait()
            assert (done.wr_id, done.status) == (i, 0)
        tell(peer, "written")
    if RANK == 0:
        assert content(end, SIZE) == bytes([(count - 1) % 251]) * SIZE
        say("as it was sent")


def fork() -> None:
    """The same by a child, whose parent has closed all descriptors and waits."""
    if (child := os.fork()) == 0:
        write(3)
        return
    os.closerange(4, 256)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def close() -> None:
    """Open the device, close every descriptor, and try to use it."""
    end = End(Path(os.environ["NCCL_IBVERBS_LIB"]))
    os.closerange(3, 256)
    try:
        end.make_qp()
    except OSError as error:
        say(str(error.errno))


def many() -> None:
    """Make queue pairs of which the NIC needs more descriptors than a process usually has."""
    end = End(Path(os.environ["NCCL_IBVERBS_LIB"]))
    for _ in range(150):
        end.make_qp()
    say("made")


def names() -> None:
    """Each host listens at the same port, over IPv4 and IPv6, and calls all others by name."""
    with (
        socket.create_server(("", PORT)) as ipv4,
        socket.create_server(("", PORT + 1), family=socket.AF_INET6, dualstack_ipv6=True) as ipv6,
    ):
        for server in (ipv4, ipv6):
            time.sleep(1)  # all of them listen
            port = server.getsockname()[1]
            calls = [socket.create_connection((name, port)) for name in NAMES]
            for call in calls:
                call.sendall(NAMES[RANK].encode().ljust(8))
            found = {server.accept()[0].recv(8).decode().strip() for _ in NAMES}
            assert found == set(NAMES), found
            time.sleep(1)
    say(*NAMES)


def stop() -> None:
    """Keep the process of the fabric from running for a while, as a busy machine would."""
    if RANK == 1:
        parent = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="ascii")
        fabric = int(parent.rpartition(")")[2].split()[1])
        script = f"sleep 0.5; kill -STOP {fabric}; sleep 1; kill -CONT {fabric}"
        with subprocess.Popen(["/bin/sh", "-c", script]):
            write()
        return
    write()


def drop() -> None:
    """The first host forgets its device without closing it, and goes on using the memory."""
    device, memory = open_device(), bytearray(SIZE)
    device.library.take_event(device._channel)  # which another thread has taken: it waits for none
    cq = device.create_cq()
    soon = QpAttributes(linear_retries=1, exponential_retries=0)
    qp = device.create_qp(cq, attributes=soon)
    region = device.reg_mr(memory)
    with met() as peer:
        own = [device.address.hex(), qp.local.qpn, qp.local.psn, region.va, region.rkey]
        address, qpn, psn, va, rkey = tell(peer, own)
        qp.connect(Destination(bytes.fromhex(address), qpn, psn))
        tell(peer, "connected")
        if RANK == 0:
            del device, cq, qp, region
        tell(peer, "dropped")
        if RANK == 1:
            qp.post_write(1, b"x", va, rkey)
            (done,) = device.wait(cq)
            say(done.status.value)
        tell(peer, "written")
    if RANK == 0:
        say("untouched" if not any(memory) else "written to")


def wait() -> None:
    """Stay, with a child that has left."""
    subprocess.Popen(["/bin/sh", "-c", "setsid sleep 3600 & sleep 3600"])
    say("here")
    time.sleep(3600)


if __name__ == "__main__":
    {f.__name__: f for f in (write, fork, close, drop, many, names, stop, wait)}[sys.argv[1]](
        *map(int, sys.argv[2:])
    )
