"""Whether packets take the fabric's propagation delay, from the socket to the transport."""

from typing import TYPE_CHECKING

from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S
from testbed.model.workload import WriteBw
from testbed.results.records import ARRIVALS, TRANSMISSIONS
from testbed.studies.bench.measure import Measurement, Setting, at_least, at_most, no_target
from testbed.studies.bench.runs import at_carried_dilation, make_runs, seeded

if TYPE_CHECKING:
    from testbed.results.run_data import RunData

PAIRS = (("h0", "h4"), ("h1", "h2"))
"""One pair over a T1 and one below the same T0s: the two possible delays."""

MEDIAN_PERCENT, P99_PERCENT = 2.0, 5.0
DURATION = "5 s"
"""At the default dilation; the number of round trips is the same at any other."""


def delay(setting: Setting) -> list[Measurement]:
    """Compare the delay of single packets on idle paths with the model's."""
    scenario = at_carried_dilation(_scenario(), setting)
    runs = make_runs(seeded(scenario, setting), setting)
    middle, high = zip(*(_errors(bench_run.run.data) for bench_run in runs), strict=True)
    return [
        no_target("dilation", "", [scenario.topology.dilation]),
        at_least("runs trusted", "", [bench_run.trusted for bench_run in runs], 1),
        at_most("propagation delay off by, median, of a base RTT", "%", middle, MEDIAN_PERCENT),
        at_most("propagation delay off by, p99, of a base RTT", "%", high, P99_PERCENT),
    ]


def _scenario() -> Scenario:
    return Scenario(
        name="delay",
        topology=load_topology("clos-4plane"),
        duration=DURATION,
        workload=WriteBw(pairs=PAIRS, message_size="4 KiB"),
    )


def _errors(data: "RunData") -> tuple[float, float]:
    """Median and 99th percentile of the error, in percent of the model's base RTT."""
    import polars as pl  # noqa: PLC0415 - starts threads, and sandboxes are forked before

    once = pl.col("retransmitted").not_()
    sent = data.tables[TRANSMISSIONS].filter(once, pl.col("t") > 0)
    seen = data.tables[ARRIVALS].filter(once).select("flow", "seq", seen="t")
    should_s = {flow.flow: _one_way_s(data, flow.src, flow.dst) for flow in data.run.flows}
    error = (
        sent.join(seen, on=["flow", "seq"])
        .select(
            (pl.col("seen") - pl.col("t") - pl.col("flow").replace_strict(should_s)).abs()
            / (data.topology.propagation_rtt_ns / NS_PER_S)
            * 100
        )
        .to_series()
    )
    middle, high = error.median(), error.quantile(0.99)
    return float(str(middle)), float(str(high))


def _one_way_s(data: "RunData", src: str, dst: str) -> float:
    topology = data.topology
    same_rack = topology.rack(topology.nodes[src]) == topology.rack(topology.nodes[dst])
    return topology.one_way_ns(1 if same_rack else 3) / NS_PER_S
