"""Each figure's runs, made up: as the paper saw them, and with one thing wrong at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any

import polars as pl

from testbed.campaign.store import Run
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.summary import Time
from testbed.paper.planning import select_figures
from testbed.results.analysis.ev_states import Span

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

Runs = dict[str, Run]


@dataclass(frozen=True)
class Case:
    """A figure's runs, made up.

    Attributes:
        runs: makes them, as the paper saw it but for what it is told.
        wrong: a pattern of the claims that fail, and what it is then told.
    """

    runs: Callable[..., Runs]
    wrong: tuple[tuple[str, Mapping[str, Any]], ...]


def _flows_over_time(*names: str, **usual: float) -> Callable[..., Runs]:
    return lambda **wrong: {name: over_time(name, **(usual | wrong)) for name in names}


def _writes(local_us: float = 5.09, cross_us: float = 6.54, gbps: float = 770) -> Runs:
    runs = {}
    for place, latency_us in (("local", local_us), ("cross", cross_us)):
        latency = SimpleNamespace(median=Time({"ms": latency_us * DILATION / 1e3}))
        runs[f"write-lat-{place}"] = run(flows=(SimpleNamespace(latency=latency),))
        goodput = SimpleNamespace(goodput_bps=gbps * 1e9 / DILATION)
        runs[f"write-bw-{place}"] = run(flows=(goodput,))
    return runs


def _unknown_dead_paths(first: int = 4, later: int = 0) -> Runs:
    at_first = [0.1 + i / 10 for i in range(first)]
    afterwards = [2.0 + i / 10 for i in range(later)]
    return {"unknown-dead-paths": run(flow(lost=at_first + afterwards))}


def _job(
    length_s: Callable[[float], float], *, faults: Any = (), lost: int = 0, errors: int = 0
) -> Run:
    return run(
        faults=faults,
        tables={"operations": steps(length_s)},
        integrity=SimpleNamespace(bytes_lost=lost, bytes_corrupted=0),
        qps_in_error=errors,
    )


def _fabric_flaps(step_s: float = 1.05, **broken: int) -> Runs:
    flaps = [SimpleNamespace(effective_s=1.5 + 2.5 * i) for i in range(5)]
    return {
        "job-undisturbed": _job(lambda _: 1.0),
        "job-fabric-flaps": _job(lambda _: step_s, faults=flaps, **broken),
    }


def _transceiver_flaps(during_s: float = 1.3, after_s: float = 1.0, **broken: int) -> Runs:
    (fault,) = faults_of(scenario_of("job-transceiver-flaps"))

    def length_s(t: float) -> float:
        return 1.0 if t < fault.effective_s else during_s if t < fault.healed_s else after_s

    return {
        "job-undisturbed": _job(lambda _: 1.0),
        "job-transceiver-flaps": _job(length_s, faults=[fault], **broken),
    }


def _lossy_ev(out_rtts: float = 1.3, rate: float = 1.0, *, backup: bool = True) -> Runs:
    """EV 0 loses, EV 1 does not, EV 2 stands by; all of plane 0."""
    scenario = scenario_of("lossy-ev")
    faults = faults_of(scenario, detection=Time({"rtt": out_rtts}))
    out = faults[0].effective_s + out_rtts * RTT_S

    def active(*spans: tuple[float, float, bool]) -> tuple[Span, ...]:
        return tuple(Span(start, end, "GOOD", role, "") for start, end, role in spans)

    spans = {
        0: active((0, out, True), (out, SECONDS, False)),
        1: active((0, SECONDS, True)),
        2: active((0, out, False), (out, SECONDS, backup)),
    }
    data = {"path_of": lambda _flow, ev: SimpleNamespace(plane=0, t1=ev)}
    return {"lossy-ev": run(flow(rate=[(0, rate)], spans=spans), faults=faults, data=data)}


def _same_ev(slower: float = 0.99, unskipped: float = 0.75, both_have: float = 0.375) -> Runs:
    """EV 1 goes over the T1 that both flows reach their peers by."""
    faults = faults_of(scenario_of("same-ev"))
    data = {"path_of": lambda _flow, ev: SimpleNamespace(plane=0, t1=ev)}
    sent = pl.DataFrame(
        {
            "t": [3 + i / 200 for i in range(1000)],
            "ev": [int(i % 200 < 200 * both_have) for i in range(1000)],
        }
    )

    def two(rate: float) -> Run:
        flows = (flow(rate=[(0, one)], spans={0: (), 1: ()}, sent=sent) for one in (1.0, rate))
        return run(*flows, faults=faults, data=data)

    return {"same-ev": two(slower), "same-ev-no-skip": two(unskipped)}


def _send_receive(share: float = 0.92) -> Runs:
    return {"send-receive": collective(share)}


ALL_REDUCE = {
    "mrc": 0.9,
    "roce-16": 0.6,
    "roce-1": 0.45,
    "mrc-loss-0.001": 0.85,
    "roce-16-loss-0.001": 0.3,
    "roce-1-loss-0.001": 0.2,
    "mrc-loss-0.01": 0.3,
    "roce-16-loss-0.01": 0.1,
    "roce-1-loss-0.01": 0.05,
}
ALL_TO_ALL = {"mrc": 0.8, "roce-16": 0.55, "roce-1": 0.6}


def _collectives(number: str, usual: Mapping[str, float], **wrong: float) -> Runs:
    """All sizes alike: what share of the ports' rate they reach, by the sender and its loss."""
    (figure,) = select_figures([number])
    shares = {**usual, **wrong}
    return {one.name: collective(shares[one.name.split("m-", 1)[1]]) for one in figure.variants}


EVEN: Steps = ((0, 1 / 7),)
"""What each of seven senders has of a port."""


def _incast(mrc: float = 1.0, one: float = 0.72, many: float = 0.1, smallest: Steps = EVEN) -> Runs:
    runs = {}
    for name, victim in (("mrc", mrc), ("roce-1", one), ("roce-16", many)):
        rates = [EVEN] * 6 + [smallest if name == "mrc" else EVEN]
        senders = [flow(f"h{4 + i}", "h0", rate) for i, rate in enumerate(rates)]
        data = {"topology": scenario_of(f"incast-{name}").topology}
        runs[f"incast-{name}"] = run(*senders, flow("h11", "h1", [(0, victim)]), data=data)
    return runs


def _permutation(slowest: float = 0.985, line_gbps: float = 392, roce: float = 0.4) -> Runs:
    runs = {}
    for name, share in (("permutation-mrc", slowest), ("permutation-roce", roce)):
        topology = scenario_of(name).topology
        payload_bps = line_gbps * 1e9 / DILATION * PAYLOAD_MTU / topology.wire_bytes
        flows = [
            SimpleNamespace(attainable_fraction=of_it, goodput_bps=payload_bps)
            for of_it in (share, 1.0)
        ]
        runs[name] = run(flows=flows, data={"topology": topology})
    return runs


def _failover(**wrong: tuple[float, float, float]) -> Runs:
    """By transport: its stall, what is overdue and its deficit, in base RTTs."""
    (figure,) = select_figures(["failover"])
    runs = {}
    for variant in figure.variants:
        name = variant.name.removeprefix("dead-link-")
        usual = (1.3, 2.0, 0.3) if name == "mrc" else (5.0, 10.0, 5.0)
        stall, overdue, deficit = wrong.get(name, usual)
        scenario = scenario_of(variant.name)
        stall_us = stall * RTT_S / DILATION * 1e6
        faults = faults_of(
            scenario,
            stall=Time({"rtt": stall, "real_us": stall_us}),
            deficit=Time({"rtt": deficit}),
        )
        completions, sent = messages(overdue, faults[0].effective_s)
        runs[variant.name] = run(
            flow(sent=sent), faults=faults, tables={"completions": completions}
        )
    return runs


def _ablation(**wrong: float) -> Runs:
    """By run: all that anything costs in it; with all mechanisms 1, without one 1.5."""
    (figure,) = select_figures(["ablation"])
    whole = ("dead-link-mrc", "same-ev", "ablation-incast")
    runs = {}
    for variant in figure.variants:
        usual = 1.0 if variant.name in whole else 1.5
        cost = wrong.get(variant.name, usual)
        time = Time({"rtt": cost})
        (fault,) = faults_of(scenario_of("same-ev"), stall=time, deficit=time)
        summary = SimpleNamespace(
            attainable_bps=LINE_BPS,
            goodput_run_bps=LINE_BPS / cost,
            latency=SimpleNamespace(p99=time),
        )
        rate = [(0.0, 1 / cost)]
        runs[variant.name] = run(flow(rate=rate), faults=[fault], flows=(summary,))
    return runs


def _many_hosts(**wrong: float) -> Runs:
    shares = {"mrc": 0.9, "roce-16": 0.6, "roce-1": 0.45, **wrong}
    return {f"allreduce-64-{name}": collective(share) for name, share in shares.items()}


def _t1_death(before: float = 0.96, after: float = 0.96, slowest: float = 0.95) -> Runs:
    rates = [*[(before, after)] * 49, (before, slowest)]
    flows = [flow(rate=[(0, one), (3, other)]) for one, other in rates]
    fault = SimpleNamespace(effective_s=3.0, healed_s=None)
    return {"t1-death-512": run(*flows, faults=[fault])}


STALLS = ("interruption", {"stall": 6.0})
FOLLOWS = (("least of any step", {"during": 0.8}), ("after healing", {"after": 0.8}))
AS_GOOD = {"roce-16": 0.91}
CASES: Mapping[str, Case] = {
    "5.2.1": Case(
        _writes,
        (
            ("T0-local$", {"local_us": 6.0}),
            ("cross-T1$", {"cross_us": 5.0}),
            ("bandwidth", {"gbps": 700}),
        ),
    ),
    "4": Case(
        _unknown_dead_paths,
        (("worst QP", {"first": 5}), ("afterwards", {"later": 20}), ("", {"first": 0})),
    ),
    "5": Case(
        _fabric_flaps,
        (
            ("lost to each flap", {"step_s": 3.0}),
            ("payload", {"lost": 4096}),
            ("in error", {"errors": 1}),
        ),
    ),
    "6-7": Case(
        _transceiver_flaps,
        (
            ("during the flaps", {"during_s": 2.0}),
            ("during the flaps", {"during_s": 1.0}),
            ("right after", {"after_s": 1.5}),
            ("payload", {"lost": 4096}),
            ("in error", {"errors": 1}),
        ),
    ),
    "8": Case(
        _flows_over_time("t1-silent", during=0.99, after=1.0),
        (STALLS, ("throughput", {"during": 0.9})),
    ),
    "9a": Case(
        _flows_over_time("nic-links-one-by-one", during=0.97, after=0.99, loses=1 / 8),
        (STALLS, ("remaining links", {"during": 0.85}), ("links are back", {"after": 0.9})),
    ),
    "9b": Case(
        _flows_over_time("nic-links-flap", during=0.49, after=0.97),
        (
            ("while half", {"during": 0.3}),
            ("while half", {"during": 0.8}),
            ("least of any flap", {"gap": (5.0, 5.4)}),
            ("after the flaps", {"after": 0.9}),
        ),
    ),
    "9c": Case(
        _flows_over_time("twenty-links-down", during=0.98, after=1.0),
        (STALLS, ("first failure", {"during": 0.9})),
    ),
    "9d": Case(
        _flows_over_time("fabric-links-flap", during=0.98, after=1.0),
        (STALLS, ("first failure", {"during": 0.9})),
    ),
    "10": Case(
        _flows_over_time("t0-down", during=0.875, after=1.0),
        (
            ("without the T0", {"during": 0.75}),
            ("without the T0", {"during": 1.0}),
            ("is back", {"after": 0.875}),
        ),
    ),
    "11": Case(
        _flows_over_time("t1-down", during=1.0, after=1.0),
        (("without the T1", {"during": 0.97}), ("is back", {"after": 0.97})),
    ),
    "12-13": Case(
        _lossy_ev,
        (
            ("left the active set", {"out_rtts": 6.0}),
            ("active then", {"backup": False}),
            ("line rate", {"rate": 0.94}),
        ),
    ),
    "14": Case(
        _same_ev,
        (
            ("slower of the two", {"slower": 0.9}),
            ("without ECN skip", {"unskipped": 0.95}),
            ("EV that both have", {"both_have": 0.5}),
        ),
    ),
    "15": Case(_send_receive, (("rate of a host", {"share": 0.85}),)),
    "16": Case(
        partial(_collectives, "16", ALL_REDUCE),
        (
            ("MRC over RoCE", AS_GOOD),
            ("16 QPs over 1 QP", {"roce-16": 0.44}),
            ("1 QP, of MRC's", {"roce-1": 0.7, "roce-16": 0.8}),
            ("MRC at 0.1%", {"mrc-loss-0.001": 0.7}),
            ("MRC at 1%", {"mrc-loss-0.01": 0.7}),
            ("MRC at 1%", {"mrc-loss-0.01": 0.1}),
            ("with 1 QP at 1%", {"roce-1-loss-0.01": 0.3}),
            ("with 16 QPs at 1%", {"roce-16-loss-0.01": 0.3}),
            ("with 1 QP at 1%", {"roce-1-loss-0.01": 0.25, "roce-16-loss-0.01": 0.0}),
        ),
    ),
    "17": Case(
        partial(_collectives, "17", ALL_TO_ALL),
        (
            ("better RoCE", {"roce-16": 0.85, "roce-1": 0.9}),
            ("16 QPs over 1 QP", {"roce-16": 0.7}),
        ),
    ),
    "18": Case(
        _incast,
        (
            ("MRC's victim", {"mrc": 0.8}),
            ("smallest share", {"smallest": ((0, 0.1),)}),
            ("with 1 QP", {"one": 1.0}),
            ("with 16 QPs", {"many": 0.6}),
        ),
    ),
    "19a": Case(_flows_over_time("uplinks-fail", during=0.95, after=0.98, loses=0.25), FOLLOWS),
    "19b": Case(
        _flows_over_time(
            "uplinks-slow", "uplinks-slow-nscc", during=0.95, after=0.98, loses=0.1875
        ),
        FOLLOWS,
    ),
    "19c": Case(
        _flows_over_time("uplinks-fail-together", during=0.95, after=0.98, loses=0.5), FOLLOWS
    ),
    "permutation": Case(
        _permutation,
        (
            ("MRC's slowest", {"slowest": 0.9}),
            ("with headers", {"line_gbps": 380}),
            ("RoCE's slowest", {"roce": 0.9}),
        ),
    ),
    "failover": Case(
        _failover,
        (
            ("longest stall.*: blind", {"blind": (1.3, 10, 5)}),
            ("deficit.*: blind", {"blind": (5, 10, 0.3), "go-back": (1.0, 1.0, 0.1)}),
            ("overdue.*: TCP, cubic", {"tcp": (5, 1, 5)}),
            ("", {"mrc": (inf, 30, inf)}),
        ),
    ),
    "ablation": Case(
        _ablation,
        (
            ("a dead link, blind", {"dead-link-blind": 0.9}),
            ("a dead link", {"dead-link-mrc": 1.6}),
            ("a dead link, (blind spraying|go-back-N): deficit", {"dead-link-mrc": 1.5}),
            ("two flows on an EV", {"same-ev-no-skip": 1.0}),
            ("incast.*p99", {"ablation-incast": 1.5}),
            ("two flows on an EV", {"same-ev-no-skip": 0.9}),
            ("incast, no trimming", {"ablation-incast-no-trim": 0.9}),
            ("incast, go-back-N", {"ablation-incast-go-back": 0.9}),
        ),
    ),
    "16x64": Case(
        _many_hosts,
        (
            ("MRC over RoCE", AS_GOOD),
            ("16 QPs over 1 QP", {"roce-16": 0.44}),
            ("1 QP, of MRC's", {"roce-1": 0.7, "roce-16": 0.8}),
        ),
    ),
    "scale": Case(
        _t1_death,
        (
            ("before, of what", {"before": 0.85, "after": 0.85, "slowest": 0.85}),
            ("of that before", {"after": 0.92}),
            ("slowest flow", {"slowest": 0.7}),
        ),
    ),
}
