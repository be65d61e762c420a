"""A simulated run that is watched: its stream, and faults by hand."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from testbed.live.observing import SimulationWatcher
from testbed.live.serving import Answering
from testbed.live.stream.recorded import recorded_stream
from testbed.live.stream.records import RECORD, Detection, EvChange, FaultChange, StreamRecord
from testbed.live.stream.writer import STREAM
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.results.analyse import analyse
from testbed.sim import simulate
from tests.cli.conftest import Call, call  # noqa: F401 - a fixture
from tests.live.conftest import FAILURE

pytestmark = pytest.mark.simulated

LINK = "p1_t0_0--p1_t1_1"

Answers = list[tuple[int, Any]]
Begin = Callable[[str, str, str], Answers]
"""Begins with a request, given its method, path and body; its answer is there sooner or later."""


class Asking:
    """In place of a server: asks for something each time that the run looks."""

    def __init__(self, ask: Callable[[int, Begin], None]) -> None:
        self._ask = ask
        self._looks = 0
        self.wants_end = False

    def handle_requests(self, answer: Answering, _timeout_s: float = 0.0) -> None:
        def begin(method: str, path: str, body: str) -> Answers:
            answers: Answers = []
            answer(method, path, body, answers.append)
            return answers

        self._looks += 1
        self._ask(self._looks, begin)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    file = tmp_path / "failure.yaml"
    file.write_text(FAILURE)
    return load_scenario(str(file))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the wall clock were always far ahead."""
    times = iter(range(0, 10**9, 1000))
    monkeypatch.setattr("testbed.live.observing.time.monotonic", lambda: float(next(times)))


def _watched(
    scenario: Scenario, directory: Path, site: Any, seconds: float = 3.0
) -> list[StreamRecord]:
    directory.mkdir()
    run = SimulationWatcher(scenario, directory, site, longest_ns=round(seconds * 1e9))
    simulate(scenario, directory, observer=run)
    analyse(directory, drawn=False)
    run.finish()
    return [RECORD.validate_json(line) for line in (directory / STREAM).open()]


def test_a_watched_run_tells_what_its_replay_tells(scenario: Scenario, tmp_path: Path) -> None:
    live = _watched(scenario, tmp_path / "run", Asking(lambda *_: None))
    replayed = [*recorded_stream(tmp_path / "run")]
    assert [record.id for record in live] == list(range(len(live)))
    kinds = (EvChange, Detection)
    assert [r.model_dump(exclude={"id"}) for r in live if isinstance(r, kinds)] == [
        r.model_dump(exclude={"id"}) for r in replayed if isinstance(r, kinds)
    ]
    assert [r.t for r in live if r.type == "state"] == [r.t for r in replayed if r.type == "state"]
    assert live[-1] == replayed[-1].model_copy(update={"id": live[-1].id})


def test_watching_changes_nothing_in_a_run(scenario: Scenario, tmp_path: Path) -> None:
    _watched(scenario, tmp_path / "watched", Asking(lambda *_: None))
    (tmp_path / "alone").mkdir()
    simulate(scenario, tmp_path / "alone")
    for table in ("arrivals", "transmissions", "ev_events", "completions"):
        watched, alone = (
            (tmp_path / name / f"{table}.parquet").read_bytes() for name in ("watched", "alone")
        )
        assert watched == alone, table


def test_a_fault_by_hand_takes_effect_is_detected_and_heals(
    scenario: Scenario, tmp_path: Path
) -> None:
    answers: list[tuple[int, Any]] = []

    def ask(look: int, begin: Begin) -> None:
        if look == 100:
            fault = {"kind": "blackhole", "target": LINK}
            answers.extend(begin("POST", "/faults", json.dumps(fault)))
            answers.extend(begin("POST", "/faults", json.dumps(fault)))
        if look == 250:
            answers.extend(begin("DELETE", "/faults/1", ""))
            answers.extend(begin("DELETE", "/faults/1", ""))

    records = _watched(scenario, tmp_path / "run", Asking(ask))
    assert [status for status, _ in answers] == [201, 409, 200, 409]
    assert "fault 1 is in force" in answers[1][1]["errors"][0]["expected"]
    course = [r for r in records if isinstance(r, FaultChange) and r.fault == 1]
    assert [change.phase for change in course] == ["requested", "in effect", "healed"]
    assert {d.flow for d in records if isinstance(d, Detection) and d.fault == 1} == {0, 1}
    assert course[1].t < course[2].t < 2.0


def test_a_run_goes_on_while_a_probe_waits_for_its_deadline(
    scenario: Scenario, tmp_path: Path
) -> None:
    """And answers what else is asked meanwhile."""
    probing, listed, came = Answers(), Answers(), list[int]()

    def ask(look: int, begin: Begin) -> None:
        nonlocal probing
        if look == 100:
            begin("POST", "/faults", json.dumps({"kind": "blackhole", "target": LINK}))
            probe = {"kind": "probe", "flow": "h0->h1", "ev": "p1/t1_1", "within": "1 s"}
            probing = begin("POST", "/operator", json.dumps(probe))
        if look == 101:
            assert not probing
            listed.extend(begin("GET", "/faults", ""))
        came.append(len(probing))

    records = _watched(scenario, tmp_path / "run", Asking(ask))
    ((status, content),) = probing
    assert (status, content["evs"][0]["result"]) == (200, "unanswered")
    assert listed[0][0] == 200
    at = [record.t for record in records if record.type == "state"]
    assert max(after - before for before, after in itertools.pairwise(at)) < 0.1
    assert came.index(1) > 150


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"kind": "cut", "target": "p0_t0_0--p0_t1_7"}, "p0_t1"),
        ({"kind": "kill", "target": "h0"}, "strikes a process"),
        ({"kind": "earthquake", "target": "p0"}, "kind"),
    ],
)
def test_a_wrong_fault_is_refused_with_its_reason(
    scenario: Scenario, tmp_path: Path, fault: dict[str, str], text: str
) -> None:
    answers: list[tuple[int, Any]] = []

    def ask(look: int, begin: Begin) -> None:
        if look == 20:
            answers.extend(begin("POST", "/faults", json.dumps(fault)))

    _watched(scenario, tmp_path / "run", Asking(ask), seconds=0.5)
    ((status, content),) = answers
    assert status in {400, 409}
    assert text in json.dumps(content)


def test_the_page_ends_a_run(scenario: Scenario, tmp_path: Path) -> None:
    site = Asking(lambda look, _: setattr(site, "wants_end", look == 60))
    records = _watched(scenario, tmp_path / "run", site, seconds=60)
    assert records[-1].type == "end"
    assert records[-1].t < 1.0


def test_faults_by_hand_become_a_timeline_that_repeats_the_run(
    scenario: Scenario,
    tmp_path: Path,
    call: Call,  # noqa: F811 - the fixture
) -> None:
    def ask(look: int, begin: Begin) -> None:
        if look == 100:
            fault = {"kind": "blackhole", "target": LINK}
            assert begin("POST", "/faults", json.dumps(fault))[0][0] == 201
        if look == 250:
            assert begin("DELETE", "/faults/1", "")[0][0] == 200

    _watched(scenario, tmp_path / "run", Asking(ask))
    assert call("replay", str(tmp_path / "run"), "--scenario", "again.yaml").status == 0
    again = load_scenario(str(tmp_path / "again.yaml"))
    assert [fault.kind for fault in again.timeline] == ["blackhole", "blackhole"]
    (tmp_path / "again").mkdir()
    simulate(again, tmp_path / "again")
    first, second = (
        pl.read_parquet(tmp_path / name / "ev_events.parquet") for name in ("run", "again")
    )
    assert first.equals(second)
    earlier = ("replay", str(tmp_path / "run"), "--scenario", "part.yaml", "--until", "0.9 s")
    assert call(*earlier).status == 0
    assert len(load_scenario(str(tmp_path / "part.yaml")).timeline) == 1
    assert call(*earlier[:-1], "soon").status == 2


def test_the_packets_of_the_chosen_flow_are_in_the_stream(
    scenario: Scenario, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    site: Any = Asking(lambda *_: None)
    run = SimulationWatcher(scenario, directory, site, slow_flow=1, longest_ns=500_000_000)
    simulate(scenario, directory, observer=run)
    run.finish()
    records = [RECORD.validate_json(line) for line in (directory / STREAM).open()]
    assert {record.flow for record in records if record.type == "packets"} == {1}
    sent = [packet for record in records if record.type == "packets" for packet in record.packets]
    assert len({packet.ev for packet in sent}) > 1
