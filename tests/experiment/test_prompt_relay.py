"""The operator's commands on their way to the programs of a watched prompt's host, and back."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.device_records import SOCKET_SUFFIX
from testbed.emulation.experiment.prompt_fabric import Relay
from testbed.model.units import NS_PER_S
from testbed.sandbox.channel import Channel
from testbed.sandbox.system_calls import socket_name

if TYPE_CHECKING:
    from testbed.emulation.controller.process import ControllerProcess

REFUSAL = {"errors": [{"where": "command", "found": "", "expected": "", "remedy": ""}]}


@contextmanager
def program(raw: Path, name: str, content: dict[str, Any], after_ns: int = 0) -> Iterator[None]:
    """A program in h0 that answers one command, perhaps so long after it had to begin."""
    listener = socket.socket(socket.AF_UNIX)
    with socket_name(raw / f"h0-{name}{SOCKET_SUFFIX}") as path:
        listener.bind(path)
    listener.listen()

    def answer() -> None:
        with Channel(listener.accept()[0].detach()) as caller:
            (request,) = caller.receive() or [{}]
            if after_ns:
                time.sleep(max(request["until_ns"] + after_ns - now_ns(), 0) / NS_PER_S)
            caller.send({"operated": request["operate"], "content": content})

    thread = Thread(target=answer)
    thread.start()
    yield
    thread.join()
    listener.close()


def relayed(raw: Path, within_s: float = 60) -> dict[str, Any]:
    """What the controller is answered to a command for h0 that has to be begun within a time."""
    here, there = Channel.pair()
    sent: list[dict[str, Any]] = []
    controller = SimpleNamespace(
        fileno=there.fileno, receive=there.receive, process=SimpleNamespace(send=sent.append)
    )
    relay = Relay(cast("ControllerProcess", controller), raw)
    until_ns = now_ns() + round(within_s * NS_PER_S)
    command = {"kind": "events", "host": "h0"}
    here.send({"operate": 1, "host": "h0", "until_ns": until_ns, "command": command})
    while not sent:
        relay.wait([], 0.1)
    here.close()
    there.close()
    content: dict[str, Any] = sent[0]["content"]
    return content


def events(*times: float) -> dict[str, Any]:
    """An answer with so many events that it takes several reads."""
    return {"events": [{"t": t, "reason": "long" * 500} for t in times], "dropped": 1}


def test_the_events_of_all_programs_of_a_host_are_listed_in_order(tmp_path: Path) -> None:
    odd, even = range(1, 400, 2), range(0, 400, 2)
    with (
        program(tmp_path, "1", events(*odd)),
        program(tmp_path, "2", REFUSAL),
        program(tmp_path, "3", events(*even)),
    ):
        content = relayed(tmp_path)
    assert [event["t"] for event in content["events"]] == [*range(400)]
    assert content["dropped"] == 2


def test_the_program_that_does_not_refuse_a_command_answers(tmp_path: Path) -> None:
    with program(tmp_path, "1", REFUSAL), program(tmp_path, "2", {"evs": []}):
        assert relayed(tmp_path) == {"evs": []}


def test_without_a_program_a_command_is_refused(tmp_path: Path) -> None:
    (problem,) = relayed(tmp_path)["errors"]
    assert (problem["found"], problem["expected"][:6]) == ("h0", "a host")


def test_the_events_of_a_program_are_listed_although_another_is_stopped(tmp_path: Path) -> None:
    """They are forgotten once the program has answered, so they must not be lost."""
    stopped = socket.socket(socket.AF_UNIX)
    with socket_name(tmp_path / f"h0-2{SOCKET_SUFFIX}") as path:
        stopped.bind(path)
    stopped.listen()
    with program(tmp_path, "1", events(1, 2)):
        content = relayed(tmp_path, within_s=1)
    stopped.close()
    assert [event["t"] for event in content["events"]] == [1, 2]


def test_the_events_of_a_program_that_began_just_in_time_are_listed(tmp_path: Path) -> None:
    """Its answer comes a little after the time until which it may begin."""
    with (
        program(tmp_path, "1", events(1)),
        program(tmp_path, "2", events(2), after_ns=NS_PER_S // 20),
    ):
        content = relayed(tmp_path, within_s=0.5)
    assert [event["t"] for event in content["events"]] == [1, 2]
