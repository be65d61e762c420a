"""The runs of each figure, made up as the paper observed them but for what the arguments change."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl

from testbed.model.summary import Time
from testbed.results.analysis.delivery import Span
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.records import COMPLETIONS, LINKS, OPERATIONS
from testbed.runs.result import Result
from testbed.studies.paper.experiments.incast import CROWDED, arrivals_s
from testbed.studies.paper.experiments.paths import LOSSY_VARIANTS
from testbed.studies.paper.planning import select_figures

from .made_up import (
    DILATION,
    LINE_BPS,
    RTT_S,
    SECONDS,
    Steps,
    collective,
    faults_of,
    flow,
    messages,
    over_time,
    run,
    scenario_of,
    steps,
)

Runs = dict[str, Result]


def flows_over_time_runs(*names: str, **usual: float) -> Callable[..., Runs]:
    return lambda **wrong: {name: over_time(name, **(usual | wrong)) for name in names}


def writes_runs(
    local_us: float = 5.09,
    cross_us: float = 6.54,
    gbps: float = 770,
    local_half_us: float = 5.09,
    cross_half_us: float = 6.54,
) -> Runs:
    runs = {}
    for place, latency_us, half_us in (
        ("local", local_us, local_half_us),
        ("cross", cross_us, cross_half_us),
    ):
        latency = SimpleNamespace(median=Time(ms=latency_us * DILATION / 1e3))
        number = np.arange(9)
        begun = number * 2 * half_us * DILATION / 1e6
        sent = pl.DataFrame({"flow": 0, "seq": number, "t": begun, "bytes": 2})
        done = pl.DataFrame({"flow": 0, "message": number, "t": begun + 1e-3, "bytes": 2})
        runs[f"write-lat-{place}"] = run(
            flow(sent=sent), tables={COMPLETIONS: done}, flows=(SimpleNamespace(latency=latency),)
        )
        goodput = SimpleNamespace(goodput_run_bps=gbps * 1e9 / DILATION)
        runs[f"write-bw-{place}"] = run(flows=(goodput,))
    return runs


def unknown_dead_paths_runs(first: int = 4, later: int = 0) -> Runs:
    at_first = [0.1 + i / 10 for i in range(first)]
    afterwards = [2.0 + i / 10 for i in range(later)]
    return {"unknown-dead-paths": run(flow(lost=at_first + afterwards))}


def job_runs(
    length_s: Callable[[float], float],
    *recorded: FlowTables,
    faults: Any = (),
    lost: int = 0,
    errors: int = 0,
) -> Result:
    return run(
        *recorded,
        faults=faults,
        tables={OPERATIONS: steps(length_s)},
        integrity=SimpleNamespace(bytes_lost=lost, bytes_corrupted=0),
        qps_in_error=errors,
    )


def fabric_flaps_runs(step_s: float = 1.05, **broken: int) -> Runs:
    flaps = [SimpleNamespace(effective_s=1.5 + 2.5 * i) for i in range(5)]
    return {
        "job-undisturbed": job_runs(lambda _: 1.0),
        "job-fabric-flaps": job_runs(lambda _: step_s, flow(), faults=flaps, **broken),
    }


def transceiver_flaps_runs(during_s: float = 1.3, after_s: float = 1.0, **broken: int) -> Runs:
    (fault,) = faults_of(scenario_of("job-transceiver-flaps"))

    def length_s(t: float) -> float:
        return 1.0 if t < fault.effective_s else during_s if t < fault.healed_s else after_s

    return {
        "job-of-seven-undisturbed": job_runs(lambda _: 1.0),
        "job-transceiver-flaps": job_runs(length_s, faults=[fault], **broken),
    }


def silent_t1_runs(
    during: float = 0.99, affected: int = 8, losses: int = 3, later: int = 0, **other: Any
) -> Runs:
    """So many of 32 flows lose so many packets while the T1 is silent, one more when it reboots."""
    made = flows_over_time_runs("t1-silent", during=during, after=1.0)(**other)
    faults = faults_of(scenario_of("t1-silent-many-qps"))
    start, healed = faults[0].effective_s, faults[0].healed_s
    silent = [start + 0.2 + place / 100 for place in range(losses)]
    rebooted = [healed - 0.1 - place / 100 for place in range(later)]
    flows = [flow(lost=silent + rebooted if place < affected else ()) for place in range(32)]
    data = {"scenario": scenario_of("t1-silent-many-qps")}
    return made | {"t1-silent-many-qps": run(*flows, faults=faults, data=data)}


def lossy_ev_runs(out_rtts: float = 1.3, rate: float = 1.0, *, backup: bool = True) -> Runs:
    """EV 0 loses, and EV 1 stands by; both of plane 0. All shares of loss alike."""
    scenario = scenario_of("lossy-ev")
    faults = faults_of(scenario)
    first_lost = faults[0].effective_s + 1.0
    out = first_lost + out_rtts * RTT_S

    def active(*spans: tuple[float, float, bool]) -> tuple[Span, ...]:
        return tuple(Span(start, end, "GOOD", role, "") for start, end, role in spans)

    spans = {
        0: active((0, out, True), (out, SECONDS, False)),
        1: active((0, out, False), (out, SECONDS, backup)),
    }
    data = {"path_of": lambda _flow, ev: SimpleNamespace(plane=0, t1=ev)}
    made = flow(rate=[(0, rate)], spans=spans, sent_lost=[(first_lost, 0)])
    return {variant.name: run(made, faults=faults, data=data) for variant in LOSSY_VARIANTS}


def same_ev_runs(
    forced: float = 0.97, slower: float = 0.99, unskipped: float = 0.75, both_have: float = 0.375
) -> Runs:
    """EV 1 goes over the T1 that both flows reach their peers by."""
    data = {"path_of": lambda _flow, ev: SimpleNamespace(plane=0, t1=ev)}
    sent = pl.DataFrame(
        {
            "t": [3 + i / 200 for i in range(1000)],
            "ev": [int(i % 200 < 200 * both_have) for i in range(1000)],
        }
    )

    def two(name: str, rate: float) -> Result:
        flows = (flow(rate=[(0, one)], spans={0: (), 1: ()}, sent=sent) for one in (1.0, rate))
        return run(*flows, faults=faults_of(scenario_of(name)), data=data)

    rates = {"forced-ev": forced, "same-ev": slower, "same-ev-no-skip": unskipped}
    return {name: two(name, rate) for name, rate in rates.items()}


def send_receive_runs(share: float = 0.92) -> Runs:
    return {"send-receive": collective(share)}


_QPS = (1, 2, 4, 8, 16)
ALL_REDUCE = {
    "mrc": 0.9,
    "mrc-loss-0.001": 0.85,
    "mrc-loss-0.01": 0.3,
    "16m-mrc-loss-0.001": 0.88,
    **dict(zip((f"roce-{qps}" for qps in _QPS), (0.45, 0.5, 0.53, 0.56, 0.6), strict=True)),
    **{f"roce-{qps}-loss-0.001": 0.2 for qps in _QPS},
    **{f"roce-{qps}-loss-0.01": 0.1 for qps in _QPS},
}
ALL_TO_ALL = {
    "mrc": 0.8,
    "mrc-loss-0.001": 0.7,
    "mrc-loss-0.01": 0.3,
    **dict(zip((f"roce-{qps}" for qps in _QPS), (0.6, 0.6, 0.59, 0.57, 0.55), strict=True)),
    **{f"roce-{qps}-loss-0.001": 0.2 for qps in _QPS},
    **{f"roce-{qps}-loss-0.01": 0.1 for qps in _QPS},
    "16m-roce-16-loss-0.001": 0.53,
}
"""Shares of the ports' rate by sender and loss; of one size only where the size stands before."""


def collectives_runs(number: str, usual: Mapping[str, float], **wrong: float) -> Runs:
    """What share of the ports' rate senders reach, by the sender and its loss."""
    (figure,) = select_figures([number])
    shares = {**usual, **wrong}
    made = {}
    for variant in figure.variants:
        of_size = variant.name.split("-", 1)[1]
        of_any = of_size.split("m-", 1)[1]
        made[variant.name] = collective(shares.get(of_size, shares[of_any]))
    return made


EVEN: Steps = ((0, 1 / 7),)
"""What each of seven senders has of a port."""


def incast_runs(
    mrc: float = 1.0,
    one: float = 0.72,
    lowest: float = 0.1,
    later: float = 0.8,
    smallest: Steps = EVEN,
    uneven: Steps = EVEN,
) -> Runs:
    """With 8 QPs the victim has its lowest rate first, and a better one in the last quarter.

    The last two are the smallest shares of MRC's senders, and of RoCE's with one QP.
    """
    victims: dict[str, Steps] = {
        "mrc": ((0, mrc),),
        "roce-1": ((0, one),),
        "roce-8": ((0, lowest), (SECONDS / 2, later)),
    }
    shares = {"mrc": smallest, "roce-1": uneven, "roce-8": EVEN}
    return {f"incast-{name}": _incast(name, victims[name], shares[name]) for name in victims}


def incast_without_dcqcn_runs(
    mrc: float = 1.0, one: float = 0.15, many: float = 0.1, smallest: Steps = EVEN
) -> Runs:
    victims = {"mrc-8": mrc, "pfc-1": one, "pfc-8": many}
    return {
        f"incast-{name}": _incast(name, ((0, share),), smallest if name == "mrc-8" else EVEN)
        for name, share in victims.items()
    }


def _incast(name: str, victim: Steps, smallest: Steps) -> Result:
    """The victim's share of its port; the smallest share of the senders."""
    rates = [EVEN] * 6 + [smallest]
    senders = [flow(f"h{4 + i}", "h0", rate) for i, rate in enumerate(rates)]
    scenario = scenario_of(f"incast-{name}")
    data = {"topology": scenario.topology, "scenario": scenario}
    return run(*senders, flow("h11", "h1", victim), data=data)


def permutation_runs(**wrong: tuple[float, float]) -> Runs:
    """By run: what its slowest and its fastest host has of its port."""
    usual = {
        "mrc-1": (0.98, 1.0),
        "mrc-8": (0.99, 1.0),
        "pfc-1": (0.33, 1.0),
        "pfc-8": (0.45, 1.0),
        "dcqcn-8": (0.7, 1.0),
    }
    runs = {}
    for of_run, shares in (usual | wrong).items():
        name = f"permutation-{of_run}"
        scenario = scenario_of(name)
        port_bps = scenario.topology.port_rate_bps * scenario.transport.payload_share
        flows = [
            SimpleNamespace(src=f"h{i}", goodput_run_bps=share * port_bps)
            for i, share in enumerate(shares)
        ]
        runs[name] = run(flows=flows, data={"topology": scenario.topology, "scenario": scenario})
    return runs


def arrivals_runs(
    few_bdp: float = 0.5, many_bdp: float = 2.0, empty: float = 0.1, **wrong: float
) -> Runs:
    """The queue with few flows and with many; how often it is empty; rates by tuning."""
    usual = {"default": 0.98, "aggressive": 0.88, "most_aggressive": 0.78}
    runs = {}
    for tuning, share in (usual | wrong).items():
        name = f"arrivals-{tuning.replace('_', '-')}"
        scenario = scenario_of(name)
        bdp = scenario.topology.bdp_bytes
        crowded_s = arrivals_s(scenario)[CROWDED - 1]
        times = [0.4 * i for i in range(3000)]
        queue = [
            few_bdp if t < crowded_s else 0.0 if i % 100 < 100 * empty else many_bdp
            for i, t in enumerate(times)
        ]
        links = pl.DataFrame({"t": times, "backlog_bytes": [round(bdp * share) for share in queue]})
        links = links.with_columns(direction=pl.lit("p0_t0_0>h0"))
        into = SimpleNamespace(
            delivery=SimpleNamespace(
                goodput_bps=lambda *_, share=share, scenario=scenario: (
                    share * scenario.topology.port_rate_bps * scenario.transport.payload_share
                )
            )
        )
        data = {"topology": scenario.topology, "scenario": scenario}
        runs[name] = run(cast("Any", into), tables={LINKS: links}, data=data)
    return runs


def failover_runs(**wrong: tuple[float, float, float]) -> Runs:
    """By transport: its stall, what is overdue and what is not delivered, in base RTTs."""
    (figure,) = select_figures(["failover"])
    runs = {}
    for variant in figure.variants:
        name = variant.name.removeprefix("dead-link-")
        usual = (1.3, 2.0, 0.3) if name == "mrc" else (5.0, 10.0, 5.0)
        stall, overdue, shortfall = wrong.get(name, usual)
        scenario = scenario_of(variant.name)
        stall_us = stall * RTT_S / DILATION * 1e6
        faults = faults_of(
            scenario,
            stall=Time(rtt=stall, real_us=stall_us),
            flows=_short_of(shortfall),
        )
        completions, sent = messages(overdue, faults[0].effective_s)
        runs[variant.name] = run(flow(sent=sent), faults=faults, tables={COMPLETIONS: completions})
    return runs


def _short_of(rtts: float) -> tuple[SimpleNamespace, ...]:
    """A flow without capacity for a quarter of it, and one that the fault did not concern."""
    lost, deficit = (Time(rtt=share * rtts) for share in (0.25, 0.75))
    return (
        SimpleNamespace(affected=True, capacity_lost=lost, deficit=deficit),
        SimpleNamespace(affected=False, capacity_lost=None, deficit=None),
    )


def ablation_runs(**wrong: float) -> Runs:
    """By run: all that anything costs in it; with all mechanisms 1, without one 1.5."""
    (figure,) = select_figures(["ablation"])
    whole = ("dead-link-mrc", "same-ev", "ablation-incast")
    runs = {}
    for variant in figure.variants:
        usual = 1.0 if variant.name in whole else 1.5
        cost = wrong.get(variant.name, usual)
        time = Time(rtt=cost)
        (fault,) = faults_of(scenario_of("same-ev"), stall=time, flows=_short_of(cost))
        summary = SimpleNamespace(
            ports_bps=LINE_BPS,
            goodput_run_bps=LINE_BPS / cost,
            latency=SimpleNamespace(p99=time),
        )
        rate = [(0.0, 1 / cost)]
        runs[variant.name] = run(flow(rate=rate), faults=[fault], flows=(summary,))
    return runs


_MANY_WITH_LOSS = {"mrc-loss-0.001": 0.85, "mrc-loss-0.01": 0.3}


def many_hosts_runs(**wrong: float) -> Runs:
    roce = {"roce-16": 0.6, "roce-8": 0.58, "roce-4": 0.55, "roce-2": 0.5, "roce-1": 0.45}
    shares = {"mrc": 0.9, **roce, **_MANY_WITH_LOSS, **wrong}
    return {f"allreduce-64-{name}": collective(share) for name, share in shares.items()}


def many_to_many_runs(**wrong: float) -> Runs:
    lossy = {"mrc-loss-0.001": 0.8, "roce-1-loss-0.001": 0.1}
    shares = {"mrc": 0.9, "roce-2": 0.6, "roce-1": 0.6, **lossy, **wrong}
    return {f"alltoall-64-{name}": collective(share) for name, share in shares.items()}


def t1_death_runs(before: float = 0.96, after: float = 0.96, slowest: float = 0.95) -> Runs:
    rates = [*[(before, after)] * 49, (before, slowest)]
    flows = [flow(rate=[(0, rate), (3, other)]) for rate, other in rates]
    fault = SimpleNamespace(effective_s=3.0, healed_s=None)
    return {"t1-death-512": run(*flows, faults=[fault])}
