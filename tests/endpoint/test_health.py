"""One line an interval says how late a process was and what it used."""

import json
import time
from pathlib import Path
from typing import Any

from testbed.emulation.endpoint.clock import INTERVAL_NS, HealthLog, realtime_offset_ns


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_tells_of_its_interval_only(tmp_path: Path) -> None:
    log = HealthLog(tmp_path / "health.jsonl", "h3", 1_000)
    assert log.due_ns == 1_000 + INTERVAL_NS
    for lag in range(100):
        log.lag(lag)
    log.write(2_000, {"raw_socket": 7})
    log.lag(5)
    log.write(5_000, {"raw_socket": 9})
    log.close()
    first, second = _lines(tmp_path / "health.jsonl")
    assert first["process"] == "h3"
    assert (first["t_ns"], first["interval_ns"]) == (2_000, 1_000)
    assert (first["lag_p99_ns"], first["lag_max_ns"]) == (99, 99)
    assert first["drops"] == {"raw_socket": 7}
    assert (second["interval_ns"], second["lag_max_ns"]) == (3_000, 5)
    assert second["drops"] == {"raw_socket": 9}


def test_an_interval_without_a_late_moment_has_no_lag(tmp_path: Path) -> None:
    log = HealthLog(tmp_path / "health.jsonl", "h0", 0)
    log.write(INTERVAL_NS, {})
    log.close()
    (line,) = _lines(tmp_path / "health.jsonl")
    assert line["lag_p99_ns"] == line["lag_max_ns"] == 0


def test_processor_time_is_this_process_s(tmp_path: Path) -> None:
    before_ns = time.process_time_ns()
    log = HealthLog(tmp_path / "health.jsonl", "h0", 0)
    start_ns = time.process_time_ns()
    while time.process_time_ns() < start_ns + 20_000_000:
        pass
    log.write(INTERVAL_NS, {})
    used_ns = time.process_time_ns() - before_ns
    log.close()
    (line,) = _lines(tmp_path / "health.jsonl")
    assert 20_000_000 <= line["cpu_ns"] <= used_ns


def test_several_processes_share_the_file(tmp_path: Path) -> None:
    logs = [HealthLog(tmp_path / "health.jsonl", f"h{i}", 0) for i in range(3)]
    for second in range(1, 5):
        for log in logs:
            log.write(second * INTERVAL_NS, {})
    assert [line["process"] for line in _lines(tmp_path / "health.jsonl")] == ["h0", "h1", "h2"] * 4
    for log in logs:
        log.close()


def test_the_offset_turns_wall_clock_into_monotonic_time() -> None:
    """As exactly as the clock may be slewed meanwhile."""
    offset = realtime_offset_ns()
    before = time.monotonic_ns()
    converted = time.time_ns() - offset
    after = time.monotonic_ns()
    assert before - 1_000_000 < converted < after + 1_000_000
