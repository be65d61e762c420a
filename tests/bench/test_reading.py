"""The bench of large files of traffic, with small ones."""

from functools import partial
from pathlib import Path

import pytest

from testbed.model.files.chakra import read_chakra
from testbed.model.files.goal import read_goal
from testbed.model.files.matrices import read_matrix
from testbed.studies.bench import cost
from testbed.studies.bench.measure import Setting

pytest.importorskip("google.protobuf", reason="the extra chakra is not installed")


def test_all_files_are_read_as_parts_of_scenarios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in {
        "goal": partial(cost.goal, cost.RANKS, 8),
        "matrix": partial(cost.matrix, 1000),
        "trace": partial(cost.trace, nodes=7),
        "in_new_process": lambda measure, given: measure(given),
    }.items():
        monkeypatch.setattr(cost, name, small)
    figures = cost.reading(Setting(2, tmp_path, lambda _: None))
    assert [len(figure.samples) for figure in figures] == [2] * 6


def test_files_are_as_large_as_they_are_said_to_be(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("".join(cost.goal(3, 40)))
    assert len(read_goal(file)) == 3 * 40
    file.write_text("".join(cost.matrix(1000)))
    read = read_matrix(file)
    assert (len(read.transfers), len(read.triggers)) == (1000, 500)
    for rank in range(3):
        (tmp_path / f"x.{rank}.et").write_bytes(b"".join(cost.trace(rank, 3, 40)))
    assert len(read_chakra(file)) == 3 * 40
