"""Queue pairs that begin at the same time do not go round planes and EVs in step."""

from pathlib import Path

import polars as pl
import pytest

from testbed.files.scenarios import load_scenario
from testbed.sim import simulate

pytestmark = pytest.mark.simulated


def first_planes(seed: int, directory: Path) -> pl.DataFrame:
    """The plane of each flow's first packet, in an all-to-all of eight hosts with four planes."""
    update = {"seed": seed, "duration": 500_000_000}
    directory.mkdir()
    simulate(load_scenario("alltoall").model_copy(update=update), directory)
    sent = pl.read_parquet(directory / "transmissions.parquet")
    return sent.filter(pl.col("seq") == 0).unique("flow", keep="first").sort("flow")


def test_queue_pairs_begin_on_different_planes(tmp_path: Path) -> None:
    first = first_planes(1, tmp_path / "first")
    assert first.height == 56
    of_plane = first["plane"].value_counts()["count"]
    assert len(of_plane) == 4
    assert of_plane.max() <= 56 / 2  # type: ignore[operator]  # no table is empty
    other = first_planes(2, tmp_path / "other")
    assert first["plane"].to_list() != other["plane"].to_list()
