"""Accusations held against faults: in the simulator, where both are exact."""

import json
from pathlib import Path

import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.model.summary import Localisation
from testbed.model.summary.unit import NEVER
from testbed.results.analyse import analyse
from testbed.sim import simulate

pytestmark = [pytest.mark.simulated, pytest.mark.long]

SCENARIO = """
name: localised
topology:
  name: two-racks
  planes: 2
  t0_per_plane: 2
  t1_per_plane: 3
  hosts_per_t0: 2
duration: {seconds} s
workload: {{kind: write_bw, pairs: [[h0, h2]], bidirectional: false}}
clustermapper: {{period: 20 us}}
timeline: [{faults}]
"""


def localised(
    directory: Path, *faults: str, seconds: float = 6, drawn: bool = False
) -> Localisation:
    file = directory / "scenario.yaml"
    file.write_text(SCENARIO.format(seconds=seconds, faults=", ".join(faults)))
    run = directory / "run"
    run.mkdir()
    simulate(load_scenario(str(file)), run)
    localisation = analyse(run, drawn=drawn).localisation
    assert localisation is not None
    assert (
        json.loads((run / "summary.json").read_text())["localisation"]["probes"]
        == localisation.probes
    )
    return localisation


def test_faults_are_named_and_nobody_else(tmp_path: Path) -> None:
    localisation = localised(
        tmp_path,
        "{kind: blackhole, target: p0_t0_0--p0_t1_1, at: 1 s, for: 4 s}",
        "{kind: loss, target: h1--p0_t0_0, probability: 0.2, at: 1 s, for: 4500 ms}",
        "{kind: blackhole, target: p1_t1_2, at: 2 s, for: 3 s}",
        drawn=True,
    )
    assert (tmp_path / "run/figures/link_health.png").stat().st_size > 10_000
    assert "Faults located by probes" in (tmp_path / "run/report.html").read_text()
    assert (localisation.precision, localisation.recall) == (1.0, 1.0)
    assert [fault.whole for fault in localisation.faults] == [True, True, True]
    assert localisation.exact == 1.0
    link, grey, switch = localisation.faults
    assert switch.named == "p1_t1_2"
    for fault in (link, switch):
        assert fault.after is not None
        assert fault.after.s < 1.5
    assert [link.loss, switch.loss] == pytest.approx([1, 1], abs=1e-6)
    assert grey.loss == pytest.approx(0.2, abs=0.08), "some seventy probes cross it"


def test_a_fault_that_was_not_named_was_named_never(tmp_path: Path) -> None:
    """Not "not measured": the other fault was named, and this one loses too little for that."""
    localisation = localised(
        tmp_path,
        "{kind: blackhole, target: p0_t0_0--p0_t1_1, at: 1 s, for: 2 s}",
        "{kind: loss, target: p1_t0_0--p1_t1_1, probability: 0.001, at: 4 s, for: 200 ms}",
    )
    assert [fault.values["after_s"] == NEVER for fault in localisation.faults] == [False, True]
    assert (localisation.recall, localisation.naming_rounds) == (0.5, NEVER)
    written = json.loads((tmp_path / "run" / "summary.json").read_text())["localisation"]
    keys = ("naming_s", "naming_rtt", "naming_rounds")
    assert [written[key] for key in keys] == ["never"] * 3
    assert written["faults"][1]["after_s"] == "never"


def test_the_direction_is_named(tmp_path: Path) -> None:
    """Of a link that is dead one way, and of one that is dead both ways."""
    localisation = localised(
        tmp_path,
        "{kind: blackhole, target: p0_t0_0>p0_t1_1, at: 1 s, for: 2 s}",
        "{kind: blackhole, target: p1_t0_1>h2, at: 1 s, for: 2 s}",
        "{kind: blackhole, target: p0_t0_1--p0_t1_2, at: 3500 ms, for: 2 s}",
    )
    assert [fault.named for fault in localisation.faults] == [
        fault.target for fault in localisation.faults
    ]
    assert [fault.exact for fault in localisation.faults] == [True, True, True]


def test_without_faults_there_is_nothing_to_name(tmp_path: Path) -> None:
    localisation = localised(tmp_path, seconds=3, drawn=True)
    assert (tmp_path / "run/figures/link_health.png").stat().st_size > 10_000
    assert (localisation.accusations, localisation.precision, localisation.recall) == (
        0,
        None,
        None,
    )
    assert localisation.probes_lost == 0
    assert localisation.naming is None


def test_endpoints_avoid_what_is_accused(tmp_path: Path) -> None:
    """The EVs of the accused link are DENIED, and come back when the accusation is lifted."""
    import polars as pl  # noqa: PLC0415 - only here

    localised(tmp_path, "{kind: blackhole, target: p0_t0_0--p0_t1_1, at: 1 s, for: 2 s}")
    events = pl.read_parquet(tmp_path / "run" / "ev_events.parquet")
    denied = events.filter(pl.col("new") == "DENIED")
    allowed = events.filter(pl.col("old") == "DENIED")
    assert denied.height == allowed.height > 0
    assert denied["t"].min() == pytest.approx(1.8, abs=0.8)
    assert allowed["t"].min() == pytest.approx(4, abs=1.5)
