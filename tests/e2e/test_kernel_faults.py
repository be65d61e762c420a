"""Faults that strike ends and lengths, with the kernel's TCP and Multipath TCP in place of MRC."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.e2e.conftest import CommandLine
from tests.machine import skip_without

pytestmark = [pytest.mark.root, pytest.mark.e2e]

PAIR = {"kind": "write_bw", "pairs": [["h0", "h1"]], "message_size": "256 KiB"}


def _run(
    testbed: CommandLine, transport: str, fault: dict[str, Any], *, timed: bool
) -> dict[str, Any]:
    scenario = testbed.scenario(
        topology="clos-tiny",
        duration="4 s",
        workload=PAIR,
        transport={"kind": transport},
        timeline=[fault],
    )
    summary = testbed.run(scenario, timed=timed)
    assert summary["integrity"]["bytes_lost"] == summary["integrity"]["bytes_corrupted"] == 0
    return summary


@pytest.mark.alone
@pytest.mark.parametrize("transport", ["tcp", "mptcp"])
def test_a_longer_link_lengthens_the_round_trip(testbed: CommandLine, transport: str) -> None:
    """Four T0-T1 links a round trip, 5 us each, dilated: no path is as short as it was."""
    if transport == "mptcp":
        skip_without("MPTCP")
    fault = {"kind": "delay", "target": "links", "extra": "5 us", "at": "1500 ms", "for": "2 s"}
    summary = _run(testbed, transport, fault, timed=True)
    qp = pl.read_parquet(Path(summary["run"]) / "qp.parquet")
    slower = summary["slower"]
    late = pl.col("t").is_between(slower * 2.7, slower * 3.4)
    shortest_ns = qp.filter(late)["srtt_ns"].min()
    assert isinstance(shortest_ns, int)
    assert shortest_ns / 1e3 > summary["base_rtt_us"] + slower * 150_000


def test_an_endpoint_that_is_killed_loses_nothing_but_its_own(testbed: CommandLine) -> None:
    """What it had received nobody can tell; the run goes on to its end."""
    summary = _run(testbed, "tcp", {"kind": "kill", "target": "h1", "at": "2 s"}, timed=False)
    assert summary["integrity"]["bytes_unaccounted"] > 0
    (seen,) = summary["faults"]
    assert seen["proof"]["until_end"] == {"ended": True}
    assert seen["recovery_rtt"] == "never"
