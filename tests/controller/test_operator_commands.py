"""Commands of an operator by hand: only while the run goes on, and none waits for ever."""

import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from testbed.emulation.controller.live import REPLY_TIMEOUT_S, OperatorCommands
from testbed.model.errors import Problem
from testbed.model.files.topologies import load_topology
from testbed.model.units import NS_PER_S

T0_NS = 1_000_000_000
DENY = json.dumps({"kind": "deny", "flow": "h0->h1", "ev": ["p0"]})


class Experiment:
    """Stands for the experiment: it takes messages, and may answer."""

    def __init__(self) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self.taken = threading.Event()
        self.now_ns = T0_NS
        self.commands = OperatorCommands(
            load_topology("clos-tiny"), self.send, threading.Event, lambda: self.now_ns
        )

    def send(self, message: Mapping[str, Any]) -> None:
        self.sent.append(message)
        self.taken.set()


@pytest.mark.parametrize(
    ("state", "said"),
    [("getting ready", "has not begun"), ("about to begin", "has not begun"), ("over", "is over")],
)
def test_a_command_before_and_after_the_run_is_refused(state: str, said: str) -> None:
    """With the reason; no host is told of it."""
    experiment = Experiment()
    if state != "getting ready":
        experiment.commands.begin(T0_NS)
        experiment.now_ns = T0_NS - 1
    if state == "over":
        experiment.now_ns = T0_NS
        experiment.commands.end()
    status, answer = experiment.commands.answer(DENY)
    assert status == HTTPStatus.CONFLICT
    assert said in json.dumps(answer)
    assert experiment.sent == []


A_HOST = "expected a host of clos-tiny: h0, h1"
A_FLOW = "expected a flow between hosts of clos-tiny, such as h0->h1"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"kind": "ports", "host": "**"}, f"command.host: found **, {A_HOST}"),
        ({"kind": "disable", "host": "/x", "plane": 1}, f"command.host: found /x, {A_HOST}"),
        ({"kind": "events", "host": ""}, f"command.host: {A_HOST}"),
        ({"kind": "list", "flow": "h7->h1"}, f"command.flow: found h7->h1, {A_FLOW}"),
        ({"kind": "list", "flow": "x"}, f"command.flow: found x, {A_FLOW}"),
    ],
)
def test_a_host_that_the_fabric_does_not_have_is_refused(
    command: dict[str, Any], said: str
) -> None:
    """Here: who carries commands on takes a host's name for that of a process, or of files."""
    experiment = Experiment()
    experiment.commands.begin(T0_NS)
    status, answer = experiment.commands.answer(json.dumps(command))
    assert status == HTTPStatus.BAD_REQUEST
    assert [str(Problem(**problem)) for problem in answer["errors"]] == [said]
    assert experiment.sent == []


def test_a_fault_heals_although_the_run_is_over() -> None:
    """It is not a command: the endpoint still answers, and the run waits for it."""
    experiment = Experiment()
    experiment.commands.begin(T0_NS)
    answers: list[Any] = []
    healing = threading.Thread(
        target=lambda: answers.append(experiment.commands.set_busy("h1", {}))
    )
    healing.start()
    experiment.taken.wait()
    experiment.commands.end()
    (message,) = experiment.sent
    experiment.commands.receive(message["operate"], {"busy": {}, "refused": 3})
    healing.join()
    assert answers == [{"busy": {}, "refused": 3}]


def test_a_command_that_waits_when_the_run_ends_is_refused() -> None:
    """By its end, and not only when the host's patience is over."""
    experiment = Experiment()
    experiment.commands.begin(T0_NS)
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(experiment.commands.answer(DENY)))
    waiting.start()
    experiment.taken.wait()
    (message,) = experiment.sent
    assert T0_NS < message["until_ns"] < T0_NS + REPLY_TIMEOUT_S * NS_PER_S, "the host drops it"
    experiment.commands.end()
    waiting.join()
    ((status, answer),) = answers
    assert status == HTTPStatus.GATEWAY_TIMEOUT
    assert "a run that is over" in json.dumps(answer)


def test_a_command_whose_answer_is_on_its_way_when_the_run_ends_is_answered() -> None:
    """The host has carried it out, so its sender is not told that the run is over."""
    experiment = Experiment()

    class Event(threading.Event):
        """The answer comes while the end waits for it."""

        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread() is threading.main_thread():
                experiment.commands.receive(1, {"evs": []})
            return super().wait(timeout)

    topology = load_topology("clos-tiny")
    experiment.commands = OperatorCommands(topology, experiment.send, Event, lambda: T0_NS)
    experiment.commands.begin(T0_NS)
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(experiment.commands.answer(DENY)))
    waiting.start()
    experiment.taken.wait()
    experiment.commands.end()
    waiting.join()
    assert answers == [(HTTPStatus.OK, {"evs": []})]
