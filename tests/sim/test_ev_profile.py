"""A run whose EVs a profile lists: nothing is sent with any other."""

from pathlib import Path

import polars as pl
import pytest

from testbed.model.fabric.ev_set import EvField, GeneratedProfile
from testbed.model.files.scenarios import load_scenario
from testbed.model.transport import Mrc
from testbed.sim import simulate

pytestmark = pytest.mark.simulated


def test_data_are_sent_with_the_evs_of_the_profile_only(tmp_path: Path) -> None:
    """Two of four planes; both directions of the flow, each EV in turn."""
    fields = (
        EvField(width=4, mask=0),
        EvField(width=9, max=3, mask=0x1FF),
        EvField(width=3, max=1, mask=0x7),
    )
    profile = GeneratedProfile(evs=8, fields=fields)
    scenario = load_scenario("healthy").model_copy(
        update={"duration": 2_000_000_000, "transport": Mrc(ev_profile=profile)}
    )
    simulate(scenario, tmp_path)
    sent = pl.read_parquet(tmp_path / "transmissions.parquet")
    for flow in (0, 1):
        of_flow = sent.filter(pl.col("flow") == flow)
        assert set(of_flow["ev"]) == set(profile.values(scenario.seed))
        assert set(of_flow["plane"]) == {0, 1}
