"""The file of fault records: one whole line a fault, whenever one looks."""

import json
from dataclasses import replace
from pathlib import Path

from testbed.emulation.controller.player import FaultLog
from testbed.model.faults.record import FaultRecord

RECORD = FaultRecord(1, "cut", "h0--p0_t0_0", ("h0>p0_t0_0",), "link", requested_ns=10)


def test_a_fault_has_one_line_which_is_its_newest_state(tmp_path: Path) -> None:
    """Whatever order the faults changed in."""
    path = tmp_path / "faults.jsonl"
    log = FaultLog(path)
    assert path.read_text() == ""
    log.write(RECORD)
    log.write(replace(RECORD, index=0, kind="blackhole"))
    log.write(replace(RECORD, effective_ns=12, proof={"carrier": (False, False)}))
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["index"], first["kind"], first["effective_ns"]) == (0, "blackhole", None)
    assert (second["index"], second["kind"], second["effective_ns"]) == (1, "cut", 12)
    assert second["proof"] == {"carrier": [False, False]}
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_kept_in_memory_is_written_with_the_next_fault(tmp_path: Path) -> None:
    path = tmp_path / "faults.jsonl"
    log = FaultLog(path)
    log.write(RECORD)
    log.update(replace(RECORD, effective_ns=12))
    assert json.loads(path.read_text())["effective_ns"] is None
    log.write(replace(RECORD, index=2))
    kept, _ = map(json.loads, path.read_text().splitlines())
    assert kept["effective_ns"] == 12


def test_an_error_is_an_error_until_it_is_not(tmp_path: Path) -> None:
    """The newest state decides."""
    log = FaultLog(tmp_path / "faults.jsonl")
    log.write(RECORD)
    assert not log.has_errors
    log.write(replace(RECORD, error="no carrier was lost"))
    assert log.has_errors
