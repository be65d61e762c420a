"""`testbed ev events --follow`: a stream of what the run answers."""

import json
from typing import Any

import pytest

from testbed.model.errors import InputError

from .conftest import Call

EV = {
    "t": 1.5,
    "flow": 0,
    "profile": "h0->h4",
    "ev": 0x20001,
    "port": 2,
    "state": "ASSUMED_BAD",
    "active": False,
    "reason": "a lost packet",
}
PORT = {"t": 2.0, "port": 2, "state": "no carrier"}


@pytest.fixture(autouse=True)
def _a_run_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has events, then none, then more than it keeps, and is over."""
    over = InputError.of("request", "a run that is over", "a run that is under way")
    replies = iter(
        [
            {"events": [EV, PORT], "dropped": 0},
            {"events": [], "dropped": 0},
            {"events": [EV, EV], "dropped": 7},
        ]
    )

    def answer(*_: object, **__: object) -> dict[str, Any]:
        reply = next(replies, None)
        if reply is None:
            raise over
        return reply

    monkeypatch.setattr("testbed.cli.operating._operate", answer)
    monkeypatch.setattr("testbed.cli.operating._FOLLOW_S", 0)


def test_events_are_followed_until_the_run_ends(call: Call) -> None:
    called = call("ev", "events", "RUN", "h0", "--follow")
    assert called.status == 0
    first, second, dropped, *_ = called.out.splitlines()
    assert first == (
        "1.5000 s  h0->h4  EV 0x00020001  port 2: ASSUMED_BAD, not active  (a lost packet)"
    )
    assert second == "2.0000 s  port 2: no carrier"
    assert dropped == "7 earlier events were dropped"
    assert "a run that is over" in called.err


def test_each_followed_event_is_a_line_of_json(call: Call) -> None:
    called = call("ev", "events", "RUN", "h0", "--follow", "--json")
    lines = [json.loads(line) for line in called.out.splitlines()]
    assert lines == [
        {**EV, "dropped": 0},
        {**PORT, "dropped": 0},
        {**EV, "dropped": 7},
        {**EV, "dropped": 0},
    ]


def test_without_follow_it_asks_once(call: Call) -> None:
    called = call("ev", "events", "RUN", "h0")
    assert called.status == 0
    assert len(called.out.splitlines()) == 2
