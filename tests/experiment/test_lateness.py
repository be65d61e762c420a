"""A run that goes on is ended for what no later second makes good, and for nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.experiment.machine import LatenessMonitor
from testbed.model.errors import LateError

RTT = 100_000_000
S = 1_000_000_000
T0 = 50 * S

Says = Callable[..., None]


@pytest.fixture
def says(tmp_path: Path) -> Says:
    """Write a sample of a process, of the second that ends so long after the start."""
    (tmp_path / "faults.jsonl").touch()

    def write(process: str, second: float, **values: int) -> None:
        line = {"process": process, "t_ns": T0 + round(second * S), "interval_ns": S, **values}
        with (tmp_path / "health.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    write("h0", 0.5, lag_p99_ns=RTT // 100, lag_max_ns=RTT // 50)
    return write


@pytest.fixture
def monitor(tmp_path: Path) -> LatenessMonitor:
    """The monitor of a run whose base RTT is 100 ms."""
    return LatenessMonitor(tmp_path, T0, RTT)


def struck(directory: Path, kind: str, *places: str, effective_s: float) -> None:
    """Write down a fault."""
    at = T0 + round(effective_s * S)
    fault: dict[str, Any] = {"index": 0, "kind": kind, "target": "it", "places": places}
    times = {"requested_ns": at, "effective_after_ns": at, "effective_ns": at}
    line = json.dumps({**fault, "actuator": "link", **times})
    (directory / "faults.jsonl").write_text(line + "\n")


@pytest.mark.parametrize(
    ("process", "values", "words"),
    [
        ("h1", {"lag_p99_ns": RTT * 3 // 10}, "h1 ran 30 ms late"),
        ("h1", {"lag_p99_ns": 0, "lag_max_ns": RTT * 3 // 10}, r"30 ms late \(longest"),
        ("machine", {"timer_late_ns": RTT * 3 // 10}, "a timer fired 30 ms late"),
    ],
)
def test_one_moment_may_be_enough(
    says: Says, monitor: LatenessMonitor, process: str, values: dict[str, int], words: str
) -> None:
    monitor.check()
    says(process, 4.0, **values)
    with pytest.raises(LateError, match=f"ended after 4 s, .*{words}"):
        monitor.check()


def test_a_late_second_among_many_may_still_be_one_in_twenty(
    says: Says, monitor: LatenessMonitor
) -> None:
    says("h1", 1.0, lag_p99_ns=RTT // 10, lag_max_ns=RTT // 5)
    monitor.check()


def test_it_may_not_where_a_fault_is_measured(
    tmp_path: Path, says: Says, monitor: LatenessMonitor
) -> None:
    struck(tmp_path, "blackhole", "a>b", effective_s=3.5)
    says("h1", 3.0, lag_p99_ns=RTT // 10)
    monitor.check()
    says("h1", 4.0, lag_p99_ns=RTT // 10)
    with pytest.raises(LateError, match="while a fault was measured"):
        monitor.check()


def test_what_a_fault_has_stopped_is_late_on_purpose(
    tmp_path: Path, says: Says, monitor: LatenessMonitor
) -> None:
    struck(tmp_path, "freeze", "h1", effective_s=1.5)
    says("h1", 5.0, lag_p99_ns=30 * RTT, lag_max_ns=30 * RTT)
    monitor.check()


def test_what_was_late_before_the_start_does_not_count(
    says: Says, monitor: LatenessMonitor
) -> None:
    says("h1", -0.1, lag_p99_ns=RTT, lag_max_ns=RTT)
    monitor.check()


def test_half_a_line_is_left_until_it_is_whole(
    tmp_path: Path, says: Says, monitor: LatenessMonitor
) -> None:
    health = tmp_path / "health.jsonl"
    before = health.read_bytes()
    says("h1", 2.0, lag_max_ns=RTT)
    whole = health.read_bytes()
    health.write_bytes(whole[: len(before) + 20])
    monitor.check()
    health.write_bytes(whole)
    with pytest.raises(LateError):
        monitor.check()
