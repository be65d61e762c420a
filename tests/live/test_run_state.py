"""The state of a run in a terminal, and as metrics."""

import shutil
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prometheus_client import generate_latest as prometheus_text
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from rich.console import Console

from testbed.live.metrics import registry_of
from testbed.live.stream.recorded import recorded_stream
from testbed.live.stream.records import RunState, StreamReader, to_line
from testbed.live.stream.writer import STREAM
from testbed.live.terminal import shown
from testbed.model.run_files.layout import MANIFEST
from tests.cli.conftest import Call, call  # noqa: F401 - a fixture
from tests.judging import skip_without

PROMTOOL = shutil.which("promtool")

_parsed: Any = text_string_to_metric_families
_latest: Any = generate_latest
"""Both are without types."""


def state_at(failure: Path, t: float) -> RunState:
    state = RunState()
    for record in recorded_stream(failure):
        if record.t <= t:
            state.take(record)
    return state


def text_of(state: RunState) -> str:
    console = Console(width=120, record=True, file=StringIO())
    console.print(shown(state))
    return console.export_text()


def test_a_terminal_shows_the_fault_and_who_noticed(failure: Path) -> None:
    text = text_of(state_at(failure, 1.9))
    assert "blackhole" in text
    assert "ASSUMED_BAD" in text
    assert "detected fault 0 after" in text
    assert "blackhole of p0_t0_0--p0_t1_0 healed" in text_of(state_at(failure, 3.0))
    assert "has not begun" in text_of(RunState())


def test_metrics_say_what_the_tables_say(failure: Path) -> None:
    registry = registry_of(lambda: state_at(failure, 3.0))
    families = _parsed(_latest(registry).decode())
    values = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }
    lost = pl.read_parquet(failure / "losses.parquet").filter(~pl.col("spurious"))
    assert values["mrc_flow_lost_packets_total", ("h0 → h1",)] == len(
        lost.filter(pl.col("flow") == 0)
    )
    assert values["mrc_faults_in_force", ()] == 0
    assert sum(value for (name, _), value in values.items() if name == "mrc_ev_active") == 8
    assert 0.05 < values["mrc_detection_seconds", ("0", "h0 → h1")] < 0.5
    assert _latest(registry_of(RunState)) == b"# EOF\n"


@skip_without("promtool", "prometheus")
def test_promtool_has_no_objection(failure: Path) -> None:
    text = prometheus_text(registry_of(lambda: state_at(failure, 1.9)))
    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stderr, checked.stdout) == (0, b"", b"")


def test_a_reader_waits_for_the_end_of_a_line(failure: Path, tmp_path: Path) -> None:
    lines = "".join(map(to_line, recorded_stream(failure))).encode()
    file = tmp_path / STREAM
    file.write_bytes(lines[:-5])
    reader = StreamReader(file)
    assert [record.type for record in reader.new_records()][-1] == "verdict"
    file.write_bytes(lines)
    assert [record.type for record in reader.new_records()] == ["end"]
    assert [*reader.new_records()] == []


def test_a_finished_run_shows_its_end(failure: Path, call: Call) -> None:  # noqa: F811 - the fixture
    called = call("watch", str(failure))
    assert called.status == 0
    assert "end of the run" in called.out


def test_a_run_without_stream_is_refused(tmp_path: Path, call: Call) -> None:  # noqa: F811 - the fixture
    (tmp_path / MANIFEST).write_text("{}")
    called = call("watch", str(tmp_path))
    assert called.status == 2
    assert "--live" in called.err


@pytest.mark.parametrize("option", ["--export", "--stream"])
def test_what_cannot_be_written_is_told(failure: Path, call: Call, option: str) -> None:  # noqa: F811 - the fixture
    called = call("replay", str(failure), option, "nowhere/file")
    assert called.status == 2
    assert "nowhere/file" in called.err
