"""Programs that end, fork, and run out of descriptors: `-m tests.device.lives WHAT LIBRARY`."""

import os
import resource
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.device.verbs import End, VerbsError

LIBRARY = Path(sys.argv[2])


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def error_of(call: Any, *arguments: Any) -> int | None:
    try:
        call(*arguments)
    except VerbsError as error:
        return error.errno
    return None


def connected() -> tuple[End, Any]:
    """An end with two queue pairs that are connected to each other, and one of them."""
    end = End(LIBRARY, channel=True)
    qps = end.make_qp(), end.make_qp()
    for own, other in (qps, qps[::-1]):
        end.connect(own, end.gid, other.contents.qp_num)
    return end, qps[0]


def refused() -> None:
    """Open the device, which fails; the first descriptor is the program's own all the same."""
    own = os.fstat(0)
    say(error_of(End, LIBRARY), os.path.samestat(own, os.fstat(0)))


def closed() -> None:
    """Close all descriptors, open a file in the place of each, post, and poll."""
    end, qp = connected()
    os.closerange(3, 256)
    with TemporaryFile() as file:
        for descriptor in range(file.fileno() + 1, 32):
            os.dup2(file.fileno(), descriptor)
        end.post(qp, 0, (end.va, end.mr.contents.rkey), 4)
        assert not os.fstat(file.fileno()).st_size
    while error_of(end.poll) is None:
        pass
    remote = end.va, end.mr.contents.rkey
    say(end.post(qp, 1, remote, 4), error_of(end.make_qp))


def left() -> None:
    """Leave a child that has the descriptors, and die."""
    connected()
    if child := os.fork():
        say(child)
        os.kill(os.getpid(), signal.SIGKILL)
    os.closerange(0, 3)  # who started it reads until nobody has these
    time.sleep(3600)


def forked() -> None:
    """Let a child use all that its parent has made; then go on."""
    end, qp = connected()
    remote = end.va, end.mr.contents.rkey
    for wr_id in range(3):
        assert end.post(qp, wr_id, remote, 4) == 0
    done = [entry.wr_id for entry in end.wait(2)]
    if (child := os.fork()) == 0:
        assert end.post(qp, 9, remote, 4) == 5
        assert end.post_recv(qp, 9) == 5
        assert [error_of(end.poll), error_of(end.make_qp)] == [5, 5]
        assert end.ops.req_notify_cq(end.cq, 0) == 5
        for name, thing in (("destroy_qp", qp), ("dereg_mr", end.mr)):
            end.library.call(name, thing)
        end.close()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    done += [entry.wr_id for entry in end.wait(1)]
    assert end.post(qp, 3, remote, 4) == 0
    done += [entry.wr_id for entry in end.wait(1)]
    end.library.call("destroy_qp", qp)
    say(status, done)


def short() -> None:
    """Run out of descriptors at each call that brings some."""
    end, _ = connected()
    free = os.dup(0)
    os.close(free)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    errors = list[int | None]()
    for more in range(3):  # the second socket, its doorbell, its events
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, most[1]))
        errors.append(error_of(end.library.open))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, most[1]))
    errors += [error_of(end.make_cq, 4), error_of(end.make_qp)]
    errors.append(error_of(end.library.make, "create_comp_channel", end.context))
    resource.setrlimit(resource.RLIMIT_NOFILE, most)
    say(*errors)
    end.make_cq(4)
    end.make_qp()
    after = os.dup(0)
    say(after - free)
    sys.stdin.readline()


if __name__ == "__main__":
    {f.__name__: f for f in (refused, closed, left, forked, short)}[sys.argv[1]]()
