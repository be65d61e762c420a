"""Queue pairs that begin at the same time do not go round planes and EVs in step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.model.transport import Mrc
from testbed.sim import simulate

pytestmark = [pytest.mark.simulated, pytest.mark.long]


def first_packets(scenario: str, directory: Path, changes: Mapping[str, Any]) -> pl.DataFrame:
    """The first transmissions of all flows, in order of the packets."""
    directory.mkdir()
    update = {"duration": 500_000_000, **changes}
    simulate(load_scenario(scenario).model_copy(update=update), directory)
    sent = pl.read_parquet(directory / "transmissions.parquet")
    return sent.filter(~pl.col("retransmitted")).sort("flow", "seq")


def test_queue_pairs_begin_on_different_planes(tmp_path: Path) -> None:
    """In an all-to-all of eight hosts with four planes."""
    first, other = (
        first_packets("alltoall", tmp_path / str(seed), {"seed": seed}).filter(pl.col("seq") == 0)
        for seed in (1, 2)
    )
    assert first.height == 56
    of_plane = first["plane"].value_counts()["count"]
    assert len(of_plane) == 4
    assert of_plane.max() <= 56 / 2  # type: ignore[operator]  # no table is empty
    assert first["plane"].to_list() != other["plane"].to_list()


def test_two_queue_pairs_of_the_same_hosts_have_orders_of_their_own(tmp_path: Path) -> None:
    """Of 24 orders of four planes, two are rarely the same."""
    sent = first_packets("permutation", tmp_path / "run", {"transport": Mrc(qps=2)})
    orders = [tuple(rows["plane"][:4]) for rows in sent.partition_by("flow")]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    pairs = list(zip(orders[::2], orders[1::2], strict=True))
    assert len(pairs) == 8
    assert sum(first != second for first, second in pairs) >= 6
