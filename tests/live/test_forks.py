"""Forks of a finished run: what is refused leaves nothing, and what was made is still there."""

import json
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from testbed.live.forks import (
    DIFFERENCE,
    FORKS,
    SCENARIO,
    ComparedPart,
    Difference,
    Forks,
    RunHistory,
)
from testbed.live.forks import main as make_fork
from testbed.model.errors import InputError
from testbed.model.scenario import Scenario
from testbed.results.run_data import load_run
from tests.planted import Planted
from tests.waiting import wait_until

pytestmark = pytest.mark.simulated

AT_S = 1.5


@pytest.fixture
def history(failure: Path) -> RunHistory:
    data = load_run(failure)
    scenario = data.manifest.scenario
    return RunHistory(data.scenario, scenario, data.faults, (), data.run.t0_ns, 3_000_000_000)


@pytest.fixture
def forks(tmp_path: Path, history: RunHistory) -> Iterator[Forks]:
    (tmp_path / "stream.ndjson").touch()
    forks = Forks(tmp_path, tmp_path / "stream.ndjson", lambda: history, allow_code=False)
    yield forks
    forks.close()


def begin(forks: Forks, change: dict[str, Any]) -> tuple[int, Any]:
    answer = forks.answer("POST", "/forks", json.dumps({"at_s": AT_S, "change": change}))
    assert answer is not None
    return answer


def test_what_is_refused_leaves_nothing_and_can_be_asked_again(
    forks: Forks, tmp_path: Path
) -> None:
    wrong = (
        {"heal": 99},
        {"fault": {"kind": "cut", "target": "nowhere"}},
        {"fault": {"kind": "blackhole", "target": "p0_t0_0--p0_t1_0"}},
        {"heal": 0, "fault": {"kind": "cut", "target": "p0_t0_0--p0_t1_1"}},
    )
    for change in (*wrong, *wrong):
        status, content = begin(forks, change)
        assert status == HTTPStatus.BAD_REQUEST, change
        assert content["errors"]
    assert not [*tmp_path.glob(f"{FORKS}/*")]
    status, fork = begin(forks, {"heal": 0})
    assert (status, fork["fork"]) == (HTTPStatus.ACCEPTED, 1)


REFUSED = [
    "",
    "{",
    "[" * 10_000,
    '{"at_s": 1e308}',
    '{"at_s": 1e999}',
    '{"at_s": NaN}',
    '{"at_s": -Infinity}',
    '{"at_s": 0}',
    '{"at_s": ' + "9" * 5000 + "}",
    '{"at_s": 1e9}',
    '{"at_s": "1.5 s"}',
    '{"at_s": null}',
    '{"at_s": true}',
    '{"at_s": [1.5]}',
    "[]",
    "1.5",
    '"\\ud800"',
    '{"at_s": 1.5, "change": {"heal": ' + "9" * 4000 + "}}",
    '{"at_s": 1.5, "change": {"heal": 1e308}}',
    '{"at_s": 1.5, "change": {"fault": {"kind": "\\ud800", "target": "p0"}}}',
    '{"at_s": 1.5, "change": {"fault": {"\\udfff": 1}}}',
    '{"at_s": 1.5, "change": {"fault": {"kind": "cut", "target": 1e308}}}',
    '{"at_s": 1.5, "change": {"fault": {"kind": "cut", "target": "p0", "for": 1e308}}}',
    '{"at_s": 1.5, "change": {"fault": {"kind": "cut", "target": "p0", "for": "1e308 s"}}}',
    '{"at_s": 1.5, "change": {"fault": ' + '{"a":' * 900 + "1" + "}" * 902,
    '{"at_s": 1.5, "change": {"fault": {"kind": "cut", "target": "\\ud83d\\ude00"}}}',
    '{"at_s": 1.5, "change": {"operator": {"kind": "deny", "flow": 7, "ev": {}}}}',
    '{"at_s": 1.5, "change": {"operator": []}}',
]


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body[:40])
def test_what_is_no_change_of_this_run_is_refused(forks: Forks, tmp_path: Path, body: str) -> None:
    """With 400, whatever it is; nobody who has the page ends the run with it."""
    answer = forks.answer("POST", "/forks", body)
    assert answer is not None
    status, content = answer
    assert status == HTTPStatus.BAD_REQUEST
    json.dumps(content, ensure_ascii=False).encode()
    assert not [*tmp_path.glob(f"{FORKS}/*")]


@pytest.mark.parametrize("fault", [{"kind": "kill"}, {"kind": "freeze", "for": "100 ms"}])
def test_a_fault_that_the_simulator_does_not_have_is_refused_at_once(
    forks: Forks, tmp_path: Path, fault: dict[str, str]
) -> None:
    status, content = begin(forks, {"fault": {**fault, "target": "h0"}})
    assert status == HTTPStatus.BAD_REQUEST, content
    assert "testbed run, on the emulated fabric" in json.dumps(content)
    assert not [*tmp_path.glob(f"{FORKS}/*")]


def test_code_of_a_record_is_executed_only_if_it_is_allowed(
    history: RunHistory, tmp_path: Path
) -> None:
    """Who may write a run's manifest, or the files of a fork, must not act as who replays it."""
    mark, stream = tmp_path / "executed", tmp_path / "stream.ndjson"
    stream.touch()
    source = f"class Mine: ...\nopen({str(mark)!r}, 'w')\n"
    spray = {"file": "mine.py", "name": "Mine", "source": source}
    record = {**history.resolved, "transport": {**history.resolved["transport"], "spray": spray}}
    planted = replace(history, resolved=record, scenario=Scenario.recorded(record))
    wary = Forks(tmp_path, stream, lambda: planted, allow_code=False)
    status, content = begin(wary, {})
    assert status == HTTPStatus.BAD_REQUEST
    (error,) = content["errors"]
    assert (error["where"], error["found"]) == ("transport.spray", "mine.py:Mine")
    assert "add --allow-code" in error["remedy"]
    assert not [*tmp_path.glob(f"{FORKS}/*")]
    (tmp_path / SCENARIO).write_text(json.dumps(record))
    with pytest.raises(InputError, match="a scenario without code"):
        make_fork(tmp_path, stream, AT_S, allow_code=False)
    assert not mark.exists()
    trusting = Forks(tmp_path, stream, lambda: planted, allow_code=True)
    assert begin(trusting, {})[0] == HTTPStatus.ACCEPTED
    wait_until(mark.exists)
    trusting.close()


def test_the_forks_of_an_earlier_session_are_listed_and_keep_their_numbers(
    forks: Forks, tmp_path: Path, history: RunHistory
) -> None:
    begin(forks, {})
    forks.close()
    part = ComparedPart(
        seconds=1.5,
        goodput_bps=(None, 1e6),
        lost=(0, 2),
        retransmitted=(0, 2),
        detections_rtt=({}, {3: 1.5}),
    )
    written = Difference(before=part, after=part).model_dump_json()
    (tmp_path / FORKS / "1" / DIFFERENCE).write_text(written)
    (tmp_path / FORKS / "4").mkdir()
    (tmp_path / FORKS / "4" / DIFFERENCE).write_text(written[:20])  # its process was killed
    later = Forks(tmp_path, tmp_path / "stream.ndjson", lambda: history, allow_code=False)
    answer = later.answer("GET", "/forks", "")
    assert answer is not None
    first, fourth = answer[1]
    assert (first["state"], first["at_s"]) == ("done", AT_S)
    assert first["difference"] == json.loads(written)
    assert fourth["state"] == "failed"
    assert begin(later, {})[1]["fork"] == 5
    later.close()


def test_a_directory_that_takes_no_fork_is_an_answer(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / FORKS).write_text("a file")
    status, content = begin(forks, {})
    assert status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert "room" in json.dumps(content)


def test_a_fork_imports_nothing_from_the_current_directory(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is watched in any directory, perhaps by root."""
    planted = Planted(tmp_path)
    monkeypatch.chdir(planted.directory)
    begin(forks, {})

    def state() -> Any:
        answer = forks.answer("GET", "/forks", "")
        assert answer is not None
        return answer[1][0]

    wait_until(lambda: state()["state"] != "simulating")
    assert not planted.executed
    assert state()["state"] == "done", state()
