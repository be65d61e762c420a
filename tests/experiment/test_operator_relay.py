"""The operator's commands on their way from the controller to endpoints, and the answers back."""

import select
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from testbed.emulation.experiment.processes import OperatorRelay
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import Child, spawn

if TYPE_CHECKING:
    from testbed.emulation.controller.process import ControllerProcess

ORDER = {"operate": 1, "host": "h0", "command": {"kind": "list", "flow": "h0->h4"}}
ANSWER = {"operated": 1, "content": {"evs": []}}


class Endpoint(Child):
    """One that speaks when it is told to; to wait for it without a limit fails."""

    def receive(self, timeout_s: float | None = None) -> list[dict[str, Any]]:
        assert timeout_s is not None, "whoever waits for a stopped process waits for ever"
        return super().receive(timeout_s)


@contextmanager
def relaying() -> Iterator[tuple[OperatorRelay, Endpoint, list[Any]]]:
    """A relay, the endpoint of h0, and what the controller is sent."""

    def echo(channel: Channel) -> None:
        for message in channel.messages():
            for said in message.get("say", ()):
                channel.send(said)

    child = spawn(echo, title="the endpoint of h0", isolated=False)
    endpoint = Endpoint(child.title, child.pid, child.channel)
    sent: list[Any] = []
    controller = SimpleNamespace(process=SimpleNamespace(send=sent.append))
    try:
        yield OperatorRelay(cast("ControllerProcess", controller), {"h0": endpoint}), endpoint, sent
    finally:
        endpoint.close()


def test_the_relay_does_not_wait_for_an_endpoint_that_says_nothing() -> None:
    """It may be stopped by a fault, and the healing of the fault comes after the relay's turn."""
    with relaying() as (relay, endpoint, sent):
        relay.ask([ORDER])
        for waiting in relay.waiting:
            relay.answer(waiting)
        assert relay.waiting == [endpoint]
        assert sent == []


def test_an_endpoint_that_has_drained_is_known_although_its_answer_was_awaited() -> None:
    with relaying() as (relay, endpoint, sent):
        relay.ask([ORDER])
        endpoint.send({"say": [{"drained": True}, ANSWER]})
        while relay.waiting:
            select.select([endpoint], [], [])
            relay.answer(endpoint)
        assert sent == [ANSWER]
        assert relay.drained == {"h0"}
