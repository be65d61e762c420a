"""The processes of a run that its first process starts, and the messages between them."""

import contextlib
import select
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from testbed.device.nic import EndpointWithPrograms
from testbed.emulation.controller.process import ControllerProcess
from testbed.emulation.endpoint.process import Endpoint, run_endpoint
from testbed.host.plan import EndpointPlan
from testbed.mapper.agents import run_mapper
from testbed.mapper.clustermapper import MapperPlan
from testbed.model.errors import Problem, RunFailedError, as_answer
from testbed.sandbox.channel import Channel
from testbed.sandbox.namespaces import enter_netns
from testbed.sandbox.processes import Child, spawn
from testbed.sandbox.system_calls import raise_priority

REPLY_TIMEOUT_S = 10.0
"""How long a process of the run may take to answer."""


def start_endpoint(plan: EndpointPlan, log: Path, *, serves_programs: bool = False) -> Child:
    """Start an endpoint in its host's network namespace."""
    host, kind = plan.host.name, EndpointWithPrograms if serves_programs else Endpoint

    def work(channel: Channel) -> None:
        with contextlib.suppress(PermissionError):  # then lag shows in the verdict, if there is any
            raise_priority()
        enter_netns(host)
        run_endpoint(plan, channel, kind)

    title = f"the endpoint of {host}"
    return spawn(work, title=title, isolated=False, name=f"mrc-{host}", log=log)


def start_mapper(plan: MapperPlan, raw_directory: Path, log: Path) -> Child:
    """Start the Clustermapper, which opens sockets in every host's network namespace."""
    return spawn(
        lambda channel: run_mapper(plan, raw_directory, channel),
        title="the Clustermapper",
        isolated=False,
        name="mapper",
        log=log,
    )


def receive_from_all(children: Mapping[str, Child], key: str, timeout_s: float) -> dict[str, Any]:
    """Wait until every process has sent a message with that key; return the values by name.

    Raises:
        RunFailedError: a process has ended, or has not sent one in time.
    """
    values = receive_within(children, key, timeout_s)
    late = ", ".join(name for name in children if name not in values)
    if late:
        raise RunFailedError(f"no '{key}' from {late} within {timeout_s:.0f} s")
    return values


def receive_within(children: Mapping[str, Child], key: str, timeout_s: float) -> dict[str, Any]:
    """Collect the values that processes send with that key, by name, for at most this long.

    The time begins again with each value. Other messages are dropped.

    Raises:
        RunFailedError: a process has ended that has not sent one.
    """
    values: dict[str, Any] = {}
    deadline = time.monotonic() + timeout_s
    while waiting := {child: name for name, child in children.items() if name not in values}:
        ready = select.select(list(waiting), [], [], max(deadline - time.monotonic(), 0))[0]
        if not ready:
            break
        for child in ready:
            for message in child.receive():
                if key in message:
                    values[waiting[child]] = message[key]
                    deadline = time.monotonic() + timeout_s
    return values


def finish(children: Mapping[str, Child], timeout_s: float) -> dict[str, Any]:
    """Have processes finish; return their reports by name.

    Raises:
        RunFailedError: a process has ended without a report, or has not sent one in time.
    """
    for child in children.values():
        child.send({"finish": True})
    reports = receive_from_all(children, "finished", timeout_s)
    for child in children.values():
        child.wait()
    return reports


class OperatorRelay:
    """Passes the operator's commands from the controller to endpoints, and their answers back.

    Attributes:
        drained: the hosts whose endpoints have said so, among their answers.
    """

    def __init__(self, controller: ControllerProcess, endpoints: Mapping[str, Child]) -> None:
        """Relay between a controller and endpoints; an endpoint may end."""
        self._controller = controller
        self._endpoints = endpoints
        self._waiting: dict[int, str] = {}
        self.drained: set[str] = set()

    @property
    def waiting(self) -> list[Child]:
        hosts = set(self._waiting.values())
        return [child for host, child in self._endpoints.items() if host in hosts]

    def ask(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Pass on the commands among the controller's messages."""
        for message in messages:
            if "operate" not in message:
                continue
            number, host = message["operate"], message["host"]
            endpoint = self._endpoints.get(host)
            if endpoint is None:
                self._refuse(number, host)
                continue
            try:
                endpoint.send({key: value for key, value in message.items() if key != "host"})
            except RunFailedError:  # a fault has killed it
                self._refuse(number, host)
            else:
                self._waiting[number] = host

    def answer(self, endpoint: Child) -> None:
        """Pass on the answers that an endpoint has sent; it does not wait for them."""
        try:
            messages = endpoint.receive(0)
        except RunFailedError:
            for number, host in [*self._waiting.items()]:
                if self._endpoints.get(host) is endpoint:
                    self._refuse(number, host)
            return
        for message in messages:
            if "operated" in message:
                self._waiting.pop(message["operated"], None)
                self._controller.process.send(message)
            elif "drained" in message:
                hosts = (name for name, child in self._endpoints.items() if child is endpoint)
                self.drained.update(hosts)

    def _refuse(self, number: int, host: str) -> None:
        self._waiting.pop(number, None)
        problem = Problem("command", host, "a host whose endpoint takes part and is alive")
        self._controller.process.send({"operated": number, "content": as_answer(problem)})
