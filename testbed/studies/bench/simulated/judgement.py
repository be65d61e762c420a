"""What condemns an EV: one loss, more losses than those of the others, or nothing (blind spraying).

Three ways to spray over the same faults, in virtual time: a dead path, grey paths, a grey plane,
loss everywhere, and congestion without trimming. Goodput is the least of a flow while the fault was
in force, over what was attainable.
"""

from collections.abc import Iterator, Mapping

from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.studies.bench.measure import Measurement, Setting, no_target
from testbed.studies.bench.runs import simulate_runs, with_transport
from testbed.studies.bench.simulated.congestion import WITHOUT_TRIMMING, incast_scenario

WAYS: Mapping[str, Mapping[str, str]] = {
    "absolute": {"judgement": "absolute"},
    "relative": {"judgement": "relative"},
    "blind": {"spray": "blind"},
}
"""The keys of `transport` for each."""

LINK = "p0_t0_0--p0_t1_1"
GREY = (0.001, 0.005, 0.02, 0.2)
EVERYWHERE = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.02)


def cases() -> Iterator[tuple[str, Scenario]]:
    """The faults by name, on the pair of `link-failure`; last an incast that drops packets."""
    yield "a dead path", _pair({"kind": "blackhole", "target": LINK})
    for share in GREY:
        fault = {"kind": "loss", "target": LINK, "probability": share}
        yield f"a path that loses {share:.1%}", _pair(fault)
    yield "a plane that loses 2%", _pair({"kind": "loss", "target": "p0", "probability": 0.02})
    for share in EVERYWHERE:
        fault = {"kind": "loss", "target": "links", "probability": share}
        yield f"every T0-T1 link loses {share:.2%}", _pair(fault)
    yield "7:1 incast without trimming", incast_scenario(1, WITHOUT_TRIMMING)


def judgement(setting: Setting) -> list[Measurement]:
    """Measure each case in each way, with a seed for each repeat."""
    chosen = {
        f"{case}: {way}": with_transport(scenario, keys)
        for case, scenario in cases()
        for way, keys in WAYS.items()
    }
    runs = simulate_runs("judgement", chosen, setting)
    return [figure for name, summaries in runs.items() for figure in _figures(name, summaries)]


def _figures(name: str, summaries: list[Summary]) -> Iterator[Measurement]:
    yield no_target(f"{name}, goodput of attainable", "", [_goodput(s) for s in summaries])
    stalls = [fault.stall.rtt for s in summaries for fault in s.faults if fault.stall is not None]
    if stalls:
        yield no_target(f"{name}, stall", "RTT", stalls)
    lost = [sum(flow.packets_lost for flow in s.flows) for s in summaries]
    yield no_target(f"{name}, packets lost", "", lost)


def _goodput(summary: Summary) -> float:
    """The least of a flow over what was attainable, while the fault lasted, or in the whole run."""
    key = "in_force_fraction" if summary.faults else "run_fraction"
    return min(float(flow.values[key] or 0.0) for flow in summary.flows)


def _pair(fault: Mapping[str, object]) -> Scenario:
    """The pair of `link-failure` for 36 s, with a fault from 2 s on for 30 s."""
    scenario = load_scenario("link-failure")
    changed = scenario.model_dump(mode="python") | {
        "name": "path-judgement",
        "duration": "36 s",
        "timeline": [{**fault, "at": "2 s", "for": "30 s"}],
        "expect": {},
    }
    return Scenario.model_validate(changed)
