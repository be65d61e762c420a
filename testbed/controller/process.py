"""The experiment's side of the controller process."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from testbed.controller.channel import Channel
from testbed.controller.live import SOCKET
from testbed.controller.plan import ControllerPlan
from testbed.controller.records import amend
from testbed.fabric.namespaces import die_with_parent
from testbed.model.errors import RunFailedError
from testbed.model.faults import CONTROLLER, FAULTS
from testbed.model.topology import Topology

DEATH_TIMEOUT_S = 1.0
"""How long a controller may take to end once it has said that it is being killed."""


class ControllerProcess:
    """A running controller.

    `start`, then `wait_for("listening")` and point the switch at it (only with wires), then
    `wait_for("ready")`, `begin(t0_ns)`, and at the end `stop()`.

    Attributes:
        killed: the processes that faults have killed: endpoints by their hosts, CONTROLLER.
        is_dead: whether a fault has killed the controller, and it has ended by that.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel, log: Path, directory: Path
    ) -> None:
        """Take over a process that `start` has started."""
        self.process = process
        self._channel = channel
        self._log = log
        self._directory = directory
        self._unread: list[dict[str, Any]] = []
        self.killed: frozenset[str] = frozenset()
        self.is_dead = False

    @classmethod
    def start(cls, plan: ControllerPlan, log_directory: Path) -> Self:
        """Start the controller in this network namespace: the sandbox's root one.

        It is ready in about a second, most of it Ryu's import: do something else meanwhile.
        """
        path = plan.run_directory / "controller.json"
        path.write_bytes(plan.to_json())
        log = log_directory / "controller.log"
        parent = os.getpid()
        with log.open("wb") as stderr:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "testbed.controller", str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                env=os.environ | {"EVENTLET_NO_GREENDNS": "yes"},  # slow to import, never used
                preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509 - only prctl, getppid
            )
        if process.stdin is None or process.stdout is None:
            raise AssertionError("pipes were asked for")
        channel = Channel(process.stdout.fileno(), process.stdin.fileno())
        return cls(process, channel, log, plan.run_directory)

    def fileno(self) -> int:
        """The descriptor that becomes readable when `receive` has something."""
        if self.process.stdout is None:
            raise AssertionError("a pipe was asked for")
        return self.process.stdout.fileno()

    def receive(self, timeout_s: float = 0) -> list[dict[str, Any]]:
        """What the controller has said since, after waiting at most this long for something.

        Raises:
            RunFailedError: it has ended.
        """
        if not self._unread and not self.is_dead and select.select([self], [], [], timeout_s)[0]:
            received = self._channel.receive()
            if received is None:
                if CONTROLLER in self.killed:
                    self._witness_death()
                    return []
                raise RunFailedError(
                    f"the controller ended with {self.process.wait()}: see {self._log}"
                )
            self._unread = received
            self.killed |= {message["ends"] for message in received if "ends" in message}
        said, self._unread = self._unread, []
        return said

    def wait_for(self, key: str, timeout_s: float = 15.0) -> dict[str, Any]:
        """Wait for a message that has this key; those after it are left to `receive`.

        Raises:
            RunFailedError: it did not come in time, or the controller has ended.
        """
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0 and not self.is_dead:
            said = self.receive(left)
            for position, message in enumerate(said):
                if key in message:
                    self._unread = said[position + 1 :]
                    return message
        raise RunFailedError(f"the controller did not say '{key}' in time: see {self._log}")

    def begin(self, t0_ns: int, endpoints: Mapping[str, int]) -> None:
        """Have the timeline begin at a time of CLOCK_MONOTONIC.

        Args:
            t0_ns: when.
            endpoints: the processes that faults may strike, by host.
        """
        self._channel.send({"start": t0_ns, "endpoints": dict(endpoints)})

    def heal_by_hand(self) -> None:
        """Heal what was injected by hand and is in force; no more is injected from now on.

        Raises:
            RunFailedError: it did not heal in time, or the controller has ended.
        """
        self.receive()
        if CONTROLLER in self.killed:
            return
        self._channel.send({"heal": True})
        self.wait_for("healed")

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the controller; `faults.jsonl` is complete then. Faults not healed stay.

        Raises:
            RunFailedError: a fault did not go as asked, or the controller failed.
        """
        if CONTROLLER in self.killed:
            if not self.is_dead:
                self._witness_death()
            return
        if self.process.poll() is None:
            try:
                self._channel.send({"stop": True})
                status = self.process.wait(timeout_s)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self.process.kill()
                status = self.process.wait()
        else:
            status = self.process.returncode
        if status:
            raise RunFailedError(f"the controller ended with {status}: see {self._log}")

    def _witness_death(self) -> None:
        """Write down that the fault that was to kill the controller did, or that it did not.

        The controller cannot tell that itself; it has told that it was about to die.

        Raises:
            RunFailedError: it lives on, or ended in another way.
        """
        try:
            found = f"ended with {self.process.wait(DEATH_TIMEOUT_S)}"
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            found = "lives on"
        self.is_dead = self.process.returncode == -signal.SIGKILL and found != "lives on"
        error = None if self.is_dead else f"the controller was to be killed, and {found}"
        amend(
            self._directory / FAULTS,
            lambda record: _with_death(record, time.monotonic_ns(), error),
        )
        (self._directory / SOCKET).unlink(missing_ok=True)
        if error is not None:
            raise RunFailedError(f"{error}: see {self._log}")


def _with_death(record: dict[str, Any], seen_ns: int, error: str | None) -> dict[str, Any]:
    """A fault's record, with what the parent saw of the controller's end if it is about that."""
    if CONTROLLER not in record["places"] or record["effective_after_ns"] is None:
        return record
    if error is not None:
        return record | {"error": error}
    step = {
        "asked_ns": record["asked_ns"],
        "after_ns": record["effective_after_ns"],
        "by_ns": seen_ns,
        "state": {"dead": True},
    }
    proof = {"injected": {"ended": True, "signal": int(signal.SIGKILL)}}
    return record | {"effective_ns": seen_ns, "steps": [step], "proof": proof}


@contextmanager
def faults_by_hand(topology: Topology, directory: Path) -> Iterator[None]:
    """Have faults injected by hand into the fabric of this sandbox while the block runs.

    Args:
        topology: the fabric.
        directory: where the socket, the log and the records of the faults are.
    """
    controller = ControllerProcess.start(ControllerPlan(topology, (), (), directory), directory)
    try:
        controller.wait_for("ready")
        controller.begin(time.monotonic_ns(), {})
        yield
    finally:
        controller.process.kill()
        controller.process.wait()
