"""The experiment's side of the controller process."""

import contextlib
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

from testbed.controller.live import SOCKET
from testbed.controller.plan import ControllerPlan
from testbed.controller.records import amend
from testbed.model.errors import RunFailedError
from testbed.model.fabric.topology import Topology
from testbed.model.faults.kinds import Kill
from testbed.model.faults.record import FAULTS, FaultRecord, StepRecord
from testbed.model.faults.targets import CONTROLLER
from testbed.model.run_files.layout import CONTROLLER_PLAN
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import Child, spawn

NAME = "controller"
"""What its process is called."""

DEATH_TIMEOUT_S = 1.0
"""How long a controller may take to end once it has said that it is being killed."""


class ControllerProcess:
    """A running controller.

    `start`, once the fabric stands `get_ready()`, then `wait_for("listening")` and point the switch
    at it (only with wires), then `wait_for("ready")`, `begin(t0_ns)`, and at the end `stop()`.

    Attributes:
        killed: the processes that faults have killed: endpoints by their hosts, CONTROLLER.
        is_dead: whether a fault has killed the controller, and it has ended by that.
    """

    def __init__(self, process: Child, log: Path, directory: Path) -> None:
        """Take over a process that `start` has started."""
        self.process = process
        self._log = log
        self._directory = directory
        self._unread: list[dict[str, Any]] = []
        self.killed: frozenset[str] = frozenset()
        self.is_dead = False

    @classmethod
    def start(cls, plan: ControllerPlan, log_directory: Path) -> Self:
        """Fork the controller in this network namespace: the sandbox's root one.

        It loads Ryu for a good part of a second: build the fabric meanwhile.
        """
        (plan.run_directory / CONTROLLER_PLAN).write_bytes(plan.to_json())
        log = log_directory / "controller.log"

        def work(channel: Channel) -> NoReturn:
            from testbed.controller.main import run_controller  # noqa: PLC0415 - Ryu loads slowly

            sys.exit(run_controller(plan, channel))

        process = spawn(work, title="the controller", isolated=False, name=NAME, log=log)
        return cls(process, log, plan.run_directory)

    @classmethod
    @contextmanager
    def idle(cls, topology: Topology, directory: Path, timeout_s: float = 15.0) -> Iterator[Self]:
        """One that has no timeline and no wires, ready, while the block runs; killed at its end.

        Args:
            topology: the fabric of this sandbox.
            directory: where its log, its socket and the records of the faults are.
            timeout_s: how long it may take to get ready.

        Raises:
            RunFailedError: it did not get ready in time, or has ended.
        """
        controller = cls.start(ControllerPlan(topology, (), (), directory), directory)
        try:
            controller.get_ready()
            controller.wait_for("ready", timeout_s)
            yield controller
        finally:
            controller.kill()

    @property
    def pid(self) -> int:
        """Its PID."""
        return self.process.pid

    def fileno(self) -> int:
        """The descriptor that becomes readable when `receive` has something."""
        return self.process.fileno()

    def kill(self) -> None:
        """End it at once, whatever it does, if it has not ended."""
        self.process.kill()
        self.process.close()

    def get_ready(self) -> None:
        """Tell it that the fabric stands, so that it opens what it needs, and gets ready.

        Raises:
            RunFailedError: it has ended.
        """
        try:
            self.process.channel.send({"built": True})
        except ConnectionError:
            raise RunFailedError(self._ended()) from None

    def receive(self, timeout_s: float = 0) -> list[dict[str, Any]]:
        """What the controller has said since, after waiting at most this long for something.

        Raises:
            RunFailedError: it has ended.
        """
        if not self._unread and not self.is_dead and select.select([self], [], [], timeout_s)[0]:
            received = self.process.channel.receive()
            if received is None:
                if CONTROLLER in self.killed:
                    self._witness_death()
                    return []
                raise RunFailedError(self._ended())
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
        self.process.channel.send({"start": t0_ns, "endpoints": dict(endpoints)})

    def heal_by_hand(self) -> None:
        """Heal what was injected by hand and is in force; no more is injected from now on.

        Raises:
            RunFailedError: it did not heal in time, or the controller has ended.
        """
        self.receive()
        if CONTROLLER in self.killed:
            return
        self.process.channel.send({"heal": True})
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
        if not self.process.has_ended:
            with contextlib.suppress(ConnectionError):  # it is ending by itself
                self.process.channel.send({"stop": True})
            self.process.ends_within(timeout_s)
            self.process.kill()
        if self.process.wait():
            raise RunFailedError(self._ended())

    def _ended(self) -> str:
        return f"the controller ended with {self.process.wait()}: see {self._log}"

    def _witness_death(self) -> None:
        """Write down that the fault that was to kill the controller did, or that it did not.

        The controller cannot tell that itself; it has told that it was about to die.

        Raises:
            RunFailedError: it lives on, or ended in another way.
        """
        status = self.process.wait() if self.process.ends_within(DEATH_TIMEOUT_S) else None
        found = "lives on" if status is None else f"ended with {status}"
        self.is_dead = status == -signal.SIGKILL
        self.process.kill()
        error = None if self.is_dead else f"the controller was to be killed, and {found}"
        amend(
            self._directory / FAULTS,
            lambda record: _with_death(record, time.monotonic_ns(), error),
        )
        (self._directory / SOCKET).unlink(missing_ok=True)
        if error is not None:
            raise RunFailedError(f"{error}: see {self._log}")


def _with_death(record: FaultRecord, seen_ns: int, error: str | None) -> FaultRecord:
    """A fault's record; one about the controller's death gets what its parent saw of it."""
    began_ns = record.effective_after_ns
    if CONTROLLER not in record.places or began_ns is None:
        return record
    if error is not None:
        return replace(record, error=error)
    step = StepRecord(record.asked_ns, began_ns, seen_ns, Kill.full.as_record)
    proof = {"injected": {"ended": True, "signal": int(signal.SIGKILL)}}
    return replace(record, effective_ns=seen_ns, steps=(step,), proof=proof)


@contextmanager
def faults_by_hand(topology: Topology, directory: Path) -> Iterator[None]:
    """Have faults injected by hand into the fabric of this sandbox while the block runs.

    Args:
        topology: the fabric.
        directory: where the socket, the log and the records of the faults are.
    """
    with ControllerProcess.idle(topology, directory) as controller:
        controller.begin(time.monotonic_ns(), {})
        yield
