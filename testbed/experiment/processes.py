"""The processes of a run as its first process sees them: started, spoken to, watched."""

import contextlib
import json
import os
import selectors
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.endpoint.process import run_endpoint
from testbed.host.plan import MAX_MESSAGE, EndpointPlan
from testbed.mapper.clustermapper import MapperPlan
from testbed.mapper.process import run_mapper
from testbed.model.errors import RunFailedError
from testbed.sandbox.namespaces import die_with_parent, enter_netns, go_first, name_process


@dataclass(slots=True)
class Child:
    """A process forked from this warm one, with a control socket.

    Attributes:
        name: the host's, of an endpoint.
        title: what it is, for messages.
        pid: its PID.
        control: this end of its control socket.
    """

    name: str
    title: str
    pid: int
    control: socket.socket

    def tell(self, message: dict[str, object]) -> None:
        """Send it a command.

        Raises:
            RunFailedError: it has ended.
        """
        try:
            self.control.send(json.dumps(message).encode())
        except OSError as error:
            raise RunFailedError(self._ended()) from error

    def hear(self) -> dict[str, Any]:
        """Wait for its next message.

        Raises:
            RunFailedError: it has ended.
        """
        data = self.control.recv(MAX_MESSAGE)
        if not data:
            raise RunFailedError(self._ended())
        message: dict[str, Any] = json.loads(data)
        return message

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def check(self) -> None:
        """Check that it is alive.

        Raises:
            RunFailedError: it has ended.
        """
        if self.has_ended:
            raise RunFailedError(self._ended())

    def _ended(self) -> str:
        return f"{self.title} ended: {ending(self.pid)}"


def ending(pid: int) -> str:
    """How a child process ended, in words."""
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return f"exit status {code}" if code >= 0 else f"killed by signal {-code}"


def start_endpoint(plan: EndpointPlan, log: Path) -> Child:
    """Fork an endpoint into its host's network namespace."""

    def work(control: socket.socket) -> int:
        with contextlib.suppress(PermissionError):  # then lag shows in the verdict, if there is any
            go_first()
        enter_netns(plan.host.name)
        return run_endpoint(plan, control)

    name = plan.host.name
    return _fork(name, f"the endpoint of {name}", f"mrc-{name}", work, log)


def start_mapper(plan: MapperPlan, raw_directory: Path, log: Path) -> Child:
    """Fork the Clustermapper, which opens sockets in every host's network namespace."""

    def work(control: socket.socket) -> int:
        return run_mapper(plan, raw_directory, control)

    return _fork("mapper", "the Clustermapper", "mapper", work, log)


def _fork(
    name: str, title: str, process: str, work: Callable[[socket.socket], int], log: Path
) -> Child:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        ours.close()
        _become(lambda: _as_child(process, work, theirs, parent), log)
    theirs.close()
    return Child(name, title, pid, ours)


def _as_child(
    process: str, work: Callable[[socket.socket], int], control: socket.socket, parent: int
) -> int:
    die_with_parent(parent)
    name_process(process)
    return work(control)


def _become(function: Callable[[], int], log: Path) -> None:
    status = 1
    try:
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        status = function()
    except BaseException:  # noqa: BLE001 - the log is all that can still be told
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def hear_all(endpoints: list[Child], key: str, timeout_s: float) -> dict[str, Any]:
    """Wait until every endpoint has sent a message with that key; returns the values by name.

    Raises:
        RunFailedError: one has ended, or has not said it in time.
    """
    heard = hear_within(endpoints, key, timeout_s)
    late = ", ".join(e.name for e in endpoints if e.name not in heard)
    if late:
        raise RunFailedError(f"no '{key}' from {late} within {timeout_s:.0f} s")
    return heard


def hear_within(endpoints: list[Child], key: str, timeout_s: float) -> dict[str, Any]:
    """What endpoints say with that key, by their names, until all have or none has in a time.

    Raises:
        RunFailedError: one has ended.
    """
    heard: dict[str, Any] = {}
    with selectors.DefaultSelector() as selector:
        for endpoint in endpoints:
            selector.register(endpoint.control, selectors.EVENT_READ, endpoint)
        while len(heard) < len(endpoints):
            ready = selector.select(timeout_s)
            if not ready:
                break
            for selected, _ in ready:
                endpoint = selected.data
                message = endpoint.hear()
                if key in message:
                    heard[endpoint.name] = message[key]
                    selector.unregister(endpoint.control)  # it may have ended since
    return heard
