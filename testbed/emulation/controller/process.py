"""The controller's process, and the experiment's side of it.

The experiment sends to the controller:

    {"built": true}                 the fabric is built: get ready
    {"start": t0_ns, "endpoints": {host: pid}}
                                    begin the timeline at this time of CLOCK_MONOTONIC
    {"begun": {...}, "at_ns": t}    programs have begun an operation that faults wait for
    {"operated": n, "content": {}}  the answer to a command of the operator
    {"heal": end_ns}                heal what was injected by hand, and inject no more; what the
                                    timeline heals until then has healed, too, at the answer
    {"stop": true}                  the run is over; closing the channel says the same

The controller sends:

    {"listening": port}             with wires: connect the switch to this port now
    {"ready": true, "datapath": id} wires are installed; id is null without wires
    {"fault": {...}}                a fault's record has changed (see `FaultRecord`)
    {"operate": n, "host": name, "until_ns": t, "command": {...}}
                                    a command of the operator, for the endpoint of a host, which
                                    drops it if it has not begun by then
    {"ends": name}                  a fault kills this process now: a host's, or the controller
    {"healed": true}                no fault is in force that had to be healed
    {"done": true, "failed": bool}  the timeline is over
"""

import contextlib
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

from testbed.emulation.controller.live import SOCKET
from testbed.emulation.controller.plan import OPENFLOW_PORT, ControllerPlan
from testbed.emulation.controller.player import amend
from testbed.emulation.fabric import requests
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.emulation.fabric.netlink import Netlink, NodeNamespaces
from testbed.model.errors import RunFailedError
from testbed.model.fabric.topology import Topology
from testbed.model.faults.kinds import Kill
from testbed.model.faults.record import FAULTS, FaultRecord, StepRecord
from testbed.model.faults.schedule import CONTROLLER
from testbed.model.run_files.layout import CONTROLLER_PLAN
from testbed.sandbox.channel import Channel
from testbed.sandbox.namespaces import NETNS_DIR
from testbed.sandbox.processes import Child, describe_exit, spawn
from testbed.sandbox.system_calls import raise_priority

NAME = "controller"
"""The name of its process, and of its log."""

APP = "testbed.emulation.controller.app"

DEATH_TIMEOUT_S = 1.0
"""How long a controller may take to end once it has announced that it is being killed."""

HEAL_TIMEOUT_S = 15.0
RELAY_S = 0.01
"""How long healing may take at the end, and how often messages are relayed meanwhile."""

TRIAL_TIMEOUT_S = 60.0
"""For a trial on a busy machine; a controller that ends is noticed at once."""

TRIAL_RETRY_S = 0.02


class ControllerProcess:
    """A running controller.

    `start`; once the fabric is built `get_ready()`; with wires `wait_for("listening")` and connect
    the switch; then `wait_for("ready")`, `begin(t0_ns)`, and at the end `stop()`.

    Attributes:
        process: its process.
        killed: the processes that faults have killed: the hosts of endpoints, CONTROLLER.
        is_dead: whether a fault has killed the controller, and it has ended.
    """

    def __init__(self, process: Child, directory: Path) -> None:
        """Take over a process that `start` has started; `directory` has its records and socket."""
        self.process = process
        self._directory = directory
        self._unread: list[dict[str, Any]] = []
        self.killed: frozenset[str] = frozenset()
        self.is_dead = False

    @classmethod
    def start(cls, plan: ControllerPlan, log_directory: Path) -> Self:
        """Start the controller in this network namespace: the root one of the sandbox.

        It loads Ryu for almost a second: build the fabric meanwhile.
        """
        (plan.run_directory / CONTROLLER_PLAN).write_bytes(plan.to_json())
        log = log_directory / f"{NAME}.log"

        def work(channel: Channel) -> NoReturn:
            sys.exit(_run_controller(plan, channel))

        title = f"the controller (log: {log})"
        process = spawn(work, title=title, isolated=False, name=NAME, log=log)
        return cls(process, plan.run_directory)

    @classmethod
    @contextmanager
    def idle(cls, topology: Topology, directory: Path, timeout_s: float = 15.0) -> Iterator[Self]:
        """A controller without timeline and wires, ready while the block runs; then it is killed.

        Args:
            topology: the fabric of this sandbox.
            directory: for its log, its socket and the records of faults.
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

    def fileno(self) -> int:
        """The descriptor that becomes readable when `receive` need not wait."""
        return self.process.fileno()

    def kill(self) -> None:
        self.process.kill()
        self.process.close()

    def get_ready(self) -> None:
        """Report that the fabric is built, so that the controller opens what it needs.

        Raises:
            RunFailedError: it has ended.
        """
        self.process.send({"built": True})

    def receive(self, timeout_s: float = 0) -> list[dict[str, Any]]:
        """Return the controller's next messages, after waiting at most this long; perhaps none.

        Raises:
            RunFailedError: it has ended.
        """
        messages, self._unread = self._unread, []
        if messages or self.is_dead:
            return messages
        try:
            messages = self.process.receive(timeout_s)
        except RunFailedError:
            if CONTROLLER not in self.killed:
                raise
            self._confirm_death()
        self.killed |= {message["ends"] for message in messages if "ends" in message}
        return messages

    def wait_for(self, key: str, timeout_s: float = 15.0) -> dict[str, Any]:
        """Wait for a message with this key; `receive` returns those after it.

        Raises:
            RunFailedError: it did not come in time, or the controller has ended.
        """
        deadline = time.monotonic() + timeout_s
        while (remaining := deadline - time.monotonic()) > 0 and not self.is_dead:
            messages = self.receive(remaining)
            for i, message in enumerate(messages):
                if key in message:
                    self._unread = messages[i + 1 :]
                    return message
        raise RunFailedError(f"{self.process.title} did not send '{key}' in time")

    def begin(self, t0_ns: int, endpoints: Mapping[str, int]) -> None:
        """Begin the timeline at a time of CLOCK_MONOTONIC.

        Args:
            t0_ns: when.
            endpoints: the processes that faults may strike, by host.
        """
        self.process.send({"start": t0_ns, "endpoints": dict(endpoints)})

    def heal(self, end_ns: int, relay: Callable[[Sequence[Mapping[str, Any]]], None]) -> None:
        """Heal the faults injected by hand, and wait for those that the timeline heals.

        From now on no fault is accepted.

        Args:
            end_ns: what heals later is not waited for.
            relay: called again and again with the controller's messages, to pass those on that are
                for endpoints, and their answers.

        Raises:
            RunFailedError: it did not heal in time, or the controller has ended.
        """
        relay(self.receive())
        if CONTROLLER in self.killed:
            return
        self.process.send({"heal": end_ns})
        deadline = time.monotonic() + HEAL_TIMEOUT_S
        while time.monotonic() < deadline and not self.is_dead:
            messages = self.receive(RELAY_S)
            relay(messages)
            if any("healed" in message for message in messages):
                return
        raise RunFailedError(f"{self.process.title} did not heal the faults in time")

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the controller, which completes `faults.jsonl`. Faults that are not healed stay.

        Raises:
            RunFailedError: a fault did not go as asked, or the controller failed.
        """
        if CONTROLLER in self.killed:
            if not self.is_dead:
                self._confirm_death()
            return
        if not self.process.has_ended:
            with contextlib.suppress(ConnectionError):  # it is ending by itself
                self.process.channel.send({"stop": True})
            self.process.ends_within(timeout_s)
            self.process.kill()
        if self.process.wait():
            self.process.check()

    def _confirm_death(self) -> None:
        """Record whether the fault that was to kill the controller has killed it.

        The controller cannot record that itself; it has announced that it is being killed.

        Raises:
            RunFailedError: it lives on, or ended in another way.
        """
        lives_on = not self.process.ends_within(DEATH_TIMEOUT_S)
        self.process.kill()
        status, seen_ns = self.process.wait(), time.monotonic_ns()
        self.is_dead = status == -signal.SIGKILL and not lives_on
        outcome = "lives on" if lives_on else f"ended: {describe_exit(status)}"
        error = None if self.is_dead else f"the controller was to be killed, and {outcome}"
        amend(self._directory / FAULTS, lambda record: _with_death(record, seen_ns, error))
        (self._directory / SOCKET).unlink(missing_ok=True)
        if error is not None:
            raise RunFailedError(error)


def _with_death(record: FaultRecord, seen_ns: int, error: str | None) -> FaultRecord:
    """The record of a fault; one that killed the controller gets what its parent observed."""
    began_ns = record.effective_after_ns
    if CONTROLLER not in record.places or began_ns is None:
        return record
    if error is not None:
        return replace(record, error=error)
    step = StepRecord(record.requested_ns, began_ns, seen_ns, Kill.full.as_record)
    proof = {"injected": {"ended": True, "signal": int(signal.SIGKILL)}}
    return replace(record, effective_ns=seen_ns, steps=(step,), proof=proof)


@contextmanager
def faults_by_hand(topology: Topology, directory: Path) -> Iterator[None]:
    """Accept faults by hand for the fabric of this sandbox while the block runs.

    Args:
        topology: the fabric.
        directory: for the socket, the log and the records of faults.
    """
    with ControllerProcess.idle(topology, directory) as controller:
        controller.begin(time.monotonic_ns(), {})
        yield


def _run_controller(plan: ControllerPlan, channel: Channel) -> int:
    """Be the controller until the experiment ends it; return the exit status of its process.

    0: every fault took effect and, where it was due, healed. 1: one did not. 5: the controller
    crashed.
    """
    from testbed.emulation.controller import _ryu  # noqa: PLC0415 - Ryu loads slowly, and only here

    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(name)s %(message)s",
        force=True,  # in a process forked from one that logs elsewhere
    )
    with contextlib.suppress(PermissionError):  # then the records show how late faults were
        raise_priority()  # faults have to be in time, as the endpoints' packets do
    _set_loopback_up()
    with NodeNamespaces() as namespaces:
        links = LinkControl(plan.topology, namespaces, _ryu.HubClock().sleep)
        app = _ryu.run(APP, plan.port, plan=plan, channel=channel, links=links)
    return int(app.status)


def try_ryu() -> str | None:
    """Start the controller in this sandbox and connect to it; return what failed, if anything.

    That is the test whether Ryu runs here. It takes about a second.

    Raises:
        OSError: nobody listens.
    """
    _set_loopback_up()
    topology = Topology(name="none", planes=1, t0_per_plane=1, t1_per_plane=1, hosts_per_t0=1)
    directory = NETNS_DIR.parent / NAME
    directory.mkdir()
    try:
        with ControllerProcess.idle(topology, directory, TRIAL_TIMEOUT_S) as controller:
            _connect_as_switch(time.monotonic() + TRIAL_TIMEOUT_S)
            controller.stop()
    except RunFailedError as error:
        log = directory / f"{NAME}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else str(error)
    return None


def _connect_as_switch(deadline: float) -> None:
    """Connect, and retry until the controller listens, which may be after "ready"."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", OPENFLOW_PORT), TRIAL_TIMEOUT_S).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(TRIAL_RETRY_S)
        else:
            return


def _set_loopback_up() -> None:
    with Netlink("the sandbox") as netlink:
        netlink.send([requests.set_link(requests.LOOPBACK, "lo", up=True)])
