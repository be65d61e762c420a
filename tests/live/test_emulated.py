"""The process that watches an emulated run, on raw records like those of a run."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from testbed.live.emulated import CPU_SHARE, LAG_NS, MOST_POLL_S, SLOW_POLL_S, EmulationWatcher
from testbed.live.serving import Listening
from testbed.live.stream.recorded import recorded_stream
from testbed.live.stream.records import RECORD, Detection, EvChange, FaultChange, StreamRecord
from testbed.live.stream.writer import STREAM
from testbed.model.faults.record import FAULTS
from testbed.model.files.scenarios import load_scenario
from testbed.model.files.topologies import load_topology
from testbed.model.run_files.content import RunStart
from testbed.model.run_files.layout import RAW, START
from testbed.results.analyse import analyse
from testbed.results.records import RAW_SUFFIX, TABLE_OF_NAME
from testbed.sim import simulate
from tests.live.conftest import FAILURE

pytestmark = pytest.mark.simulated

Pieces = dict[Path, bytes]


class NobodyAsks:
    """A site that nobody looks at.

    Attributes:
        waits_s: how long it was waited for requests each time.
    """

    wants_end = False

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def handle_requests(self, _: object, timeout_s: float) -> None:
        """Nothing is asked."""
        self.waits_s.append(timeout_s)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, RunStart, Pieces]:
    """A finished run, when it started, and the raw records that it was made of."""
    file = tmp_path / "failure.yaml"
    file.write_text(FAILURE)
    pieces: Pieces = {}
    keep = shutil.rmtree

    def rmtree(raw: Path) -> None:
        written = raw.with_name(RAW)  # as it was called until all tables were there
        pieces.update({written / path.name: path.read_bytes() for path in raw.iterdir()})
        keep(raw)

    monkeypatch.setattr("testbed.results.records.shutil.rmtree", rmtree)
    directory = tmp_path / "run"
    directory.mkdir()
    outcome = simulate(load_scenario(str(file)), directory)
    analyse(directory, drawn=False)
    return directory, RunStart(t0_ns=outcome.t0_ns, base_rtt_ns=outcome.base_rtt_ns), pieces


def grown(directory: Path, pieces: Pieces, now_ns: int) -> None:
    """Let the raw files grow to what they held at a time, and a part of the next row."""
    (directory / RAW).mkdir(exist_ok=True)
    for path, content in pieces.items():
        table = TABLE_OF_NAME.get(path.stem.rpartition(".")[2])
        if path.suffix != RAW_SUFFIX or table is None:
            path.write_bytes(content)
            continue
        rows = [*table.row.iter_unpack(content)]
        written = sum(row[0] <= now_ns for row in rows)
        path.write_bytes(content[: written * table.row.size + 5])


def test_the_stream_of_growing_records_is_that_of_the_finished_run(
    recorded: tuple[Path, RunStart, Pieces], tmp_path: Path
) -> None:
    directory, start, pieces = recorded
    now_ns = [start.t0_ns - 1]
    scenario = load_scenario(str(tmp_path / "failure.yaml"))
    run = EmulationWatcher(
        scenario, directory, Listening(), lambda *_: None, lambda: None, lambda: now_ns[0]
    )
    site: Any = NobodyAsks()
    run.look(site)
    grown(directory, pieces, now_ns[0])
    (directory / RAW / START).write_text(start.model_dump_json())
    run.look(site)
    assert not (directory / STREAM).exists(), "the run has not begun"
    for tenth in range(1, 11):
        now_ns[0] = start.t0_ns + round(0.3e9 * tenth)
        grown(directory, pieces, now_ns[0] - LAG_NS)
        run.look(site)
    grown(directory, pieces, now_ns[0])
    run.finish()
    live = [RECORD.validate_json(line) for line in (directory / STREAM).open()]
    replayed = [*recorded_stream(directory)]
    assert [record.id for record in live] == list(range(len(live)))
    assert rare(live) == rare(replayed)
    assert live[-1].type == "end"


def rare(stream: list[StreamRecord]) -> list[dict[str, object]]:
    kinds = (EvChange, Detection, FaultChange)
    chosen = [record for record in stream if isinstance(record, kinds)]
    return sorted((r.model_dump(exclude={"id"}) for r in chosen), key=json.dumps)


def test_the_more_cpu_time_a_look_takes_the_longer_it_waits(
    recorded: tuple[Path, RunStart, Pieces], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, start, pieces = recorded
    cpu_s, look_s = [0.0], [0.001]

    def process_time() -> float:
        cpu_s[0] += look_s[0]
        return cpu_s[0]

    monkeypatch.setattr("testbed.live.emulated.time.process_time", process_time)
    scenario = load_scenario(str(tmp_path / "failure.yaml"))
    run = EmulationWatcher(
        scenario, directory, Listening(), lambda *_: None, lambda: None, lambda: start.t0_ns
    )
    site: Any = NobodyAsks()
    grown(directory, pieces, start.t0_ns)
    (directory / RAW / START).write_text(start.model_dump_json())
    run.look(site)
    run.look(site)
    assert site.waits_s[-1] == MOST_POLL_S
    for look_s[0] in (0.004, 1.0):
        run.look(site)
        run.look(site)
        assert site.waits_s[-1] == pytest.approx(min(look_s[0] / CPU_SHARE, SLOW_POLL_S))
    run.finish()


def test_the_end_of_the_run_is_asked_for_once(tmp_path: Path) -> None:
    file = tmp_path / "failure.yaml"
    file.write_text(FAILURE)
    ended: list[bool] = []

    def end() -> None:
        ended.append(True)

    run = EmulationWatcher(load_scenario(str(file)), tmp_path, Listening(), lambda *_: None, end)
    site: Any = NobodyAsks()
    site.wants_end = True
    run.look(site)
    run.look(site)
    assert ended == [True]
    assert not (tmp_path / FAULTS).exists()


def test_the_fabric_of_a_prompt_has_no_forks(tmp_path: Path) -> None:
    topology = load_topology("clos-tiny")
    run = EmulationWatcher(topology, tmp_path, Listening(), lambda *_: None, lambda: None)
    site: Any = NobodyAsks()
    run.look(site)
    assert not [*tmp_path.glob("forks")]
