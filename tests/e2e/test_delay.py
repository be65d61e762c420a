"""A link that takes longer: what arrives over it is held longer by the receiving endpoint."""

from pathlib import Path

import polars as pl
import pytest

from tests.e2e.conftest import CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.alone]


def test_a_delay_adds_to_the_round_trip_while_it_lasts(testbed: CommandLine) -> None:
    """Four T0-T1 links a round trip, 5 us each, dilated; other paths stay quick."""
    delay = {"kind": "delay", "target": "links", "extra": "5 us", "at": "1500 ms", "for": "1500 ms"}
    pairs = [["h0", "h4"], ["h1", "h2"]]
    workload = {"kind": "write_bw", "pairs": pairs, "message_size": "256 KiB"}
    scenario = testbed.scenario(timeline=[delay], workload=workload, duration="4500 ms")
    summary = testbed.run(scenario)
    assert summary["integrity"]["bytes_lost"] == 0
    qp = pl.read_parquet(Path(summary["run"]) / "qp.parquet")

    def rtt_ms(src: str, start: float, end: float) -> float:
        """The median of a time, both as if the run had not been made slower."""
        slower: int = summary["slower"]
        (flow,) = [one["flow"] for one in summary["flows"] if one["src"] == src]
        span = pl.col("t").is_between(slower * start, slower * end)
        seen = qp.filter((pl.col("flow") == flow) & span)
        return float(seen["srtt_ns"].median() or 0) / 1e6 / slower  # type: ignore[arg-type]

    before, during, after = (rtt_ms("h0", *at) for at in ((1.0, 1.5), (2.2, 3.0), (4.0, 4.5)))
    assert during - before > 150
    assert after - before < 50
    assert abs(rtt_ms("h1", 2.2, 3.0) - rtt_ms("h1", 1.0, 1.5)) < 50
