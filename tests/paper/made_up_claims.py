"""The runs of what the paper says in its text, made up as it says but for what is changed."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from testbed.model.fabric.addressing import Path
from testbed.model.summary import Localisation, Time
from testbed.results.analysis.delivery import Floats, Span
from testbed.runs.result import Result
from testbed.studies.paper.experiments.claims import DELAYS_RTTS

from .made_up import LINE_BPS, faults_of, flow, run, scenario_of
from .made_up_figures import transceiver_flaps_runs

Runs = dict[str, Result]


def planes_runs(half: float = 0.5, thin: float = 0.25, shared: float = 0.5) -> Runs:
    """The shares of throughput that are left; the third while a flow on a single path runs."""
    start_s = 2.0
    one_path = flow("h1", "h4", ((0.0, 0.0), (start_s, 1 / 8)))
    sends = one_path.delivery.placed > 0
    arrived = replace(
        one_path.delivery,
        times=one_path.delivery.times[sends],
        placed=one_path.delivery.placed[sends],
    )
    scenario = scenario_of("plane-shared")
    made = {
        "plane-shared": run(
            flow("h0", "h4", ((0.0, 1.0), (start_s, shared))),
            replace(one_path, delivery=arrived),
            data={"scenario": scenario, "topology": scenario.topology},
        )
    }
    for name, during in (("plane-half", half), ("plane-thin", thin)):
        (fault,) = faults = faults_of(scenario_of(name))
        made[name] = run(_steady(during, since_s=fault.effective_s), faults=faults)
    return made


def remap_runs(
    stalls: Mapping[int, float] | None = None,
    kept: Mapping[int, float] | None = None,
    jobs: Mapping[int, Mapping[str, Any]] | None = None,
    long_flaps: Mapping[int, Mapping[str, Any]] | None = None,
    step_stalls: Mapping[int, float] | None = None,
    steps: Mapping[int, float] | None = None,
) -> Runs:
    """By the base RTTs that the NIC needs: the stall, what is used of what is left, the jobs.

    The last two are the stall and the share in the steps of figure 9a.
    """
    made = {}
    for rtts in DELAYS_RTTS:
        name = f"port-remap-{rtts}"
        stall = {**dict.fromkeys(DELAYS_RTTS, 1.5), **(stalls or {})}[rtts]
        share = {**dict.fromkeys(DELAYS_RTTS, 0.99), **(kept or {})}[rtts]
        faults = faults_of(scenario_of(name), stall=Time(rtt=stall))
        made[name] = run(_steady(share), faults=faults)
        name = f"steps-remap-{rtts}"
        longest = {**dict.fromkeys(DELAYS_RTTS, 2.0), **(step_stalls or {})}[rtts]
        step_share = {**dict.fromkeys(DELAYS_RTTS, 0.95), **(steps or {})}[rtts]
        scenario = scenario_of(name)
        faults = faults_of(scenario, stall=Time(rtt=longest))
        data = {"topology": scenario.topology}
        made[name] = run(_steady(step_share), faults=faults, data=data)
        for flaps, changes in (("", jobs), ("-long-flaps", long_flaps)):
            job = transceiver_flaps_runs(**(changes or {}).get(rtts, {}))
            made[f"job-remap-{rtts}{flaps}"] = job.pop("job-transceiver-flaps")
            made |= job
    return made


def lossy_nic_runs(
    exact: float = 1.0, *, kept: bool = False, denied: Collection[int] = (1,)
) -> Runs:
    """The sender has left plane 1, but perhaps one EV of it; the EVs of planes that are denied."""
    made = {}
    for name in ("nic-lossy", "nic-lossy-located"):
        scenario = scenario_of(name)
        faults = faults_of(scenario)
        moment = faults[0].healed_s
        evs = {
            plane | t1 << 3: (plane, t1)
            for plane in range(scenario.topology.planes)
            for t1 in range(scenario.topology.t1_per_plane)
        }
        out = () if name == "nic-lossy" else denied
        spans = {
            ev: (
                Span(
                    0.0,
                    moment + 1,
                    "DENIED" if plane in out else "GOOD",
                    plane != 1 or (kept and t1 == 0),
                    "",
                ),
            )
            for ev, (plane, t1) in evs.items()
        }
        data = {
            "topology": scenario.topology,
            "path_of": lambda _flow, ev, evs=evs: Path(*evs[ev]),
        }
        found = _localised(exact=exact)
        made[name] = run(
            flow("h0", "h4", spans=spans), faults=faults, data=data, localisation=found
        )
    return made


def _localised(**found: Any) -> Localisation:
    return Localisation.model_construct(**found)


def probes_runs(exact: float = 1.0, wrong: int = 0, rounds: float = 3) -> Runs:
    found = _localised(exact=exact, accusations_wrong=wrong, naming_rounds=rounds)
    return {"probe-each-ms": run(localisation=found)}


def ecmp_runs(hashed: float = 0.99, stall: float = 1.3) -> Runs:
    """What hash ECMP reaches of what SRv6 does, and the stall where a link dies."""
    return {
        "hash-ecmp-srv6": run(_steady(0.96)),
        "hash-ecmp-ecmp": run(_steady(0.96 * hashed)),
        "dead-link-ecmp": run(
            _steady(1.0),
            faults=faults_of(scenario_of("dead-link-ecmp"), stall=Time(rtt=stall)),
        ),
    }


def transceiver_runs(failed: int = 4, others: int = 0, kept: float = 1.0, lost: int = 0) -> Runs:
    """How many flows of the NIC and of others fail, and what the others keep of their rate."""
    ends = [("h0", "h4"), ("h4", "h0"), ("h0", "h5"), ("h5", "h0")]
    flows = tuple(
        SimpleNamespace(src=src, dst=dst, errors=("failed",) if place < failed else ())
        for place, (src, dst) in enumerate(ends)
    )
    faults = faults_of(scenario_of("nic-transceiver"))
    made = run(
        _steady(kept, since_s=faults[0].effective_s, src="h1"),
        faults=faults,
        outcomes=flows,
        qps_in_error=failed + others,
        integrity=SimpleNamespace(bytes_lost=lost, bytes_corrupted=0),
    )
    return {"nic-transceiver": made}


def _steady(share: float, *, since_s: float = 0.0, src: str = "h0") -> Any:
    """A flow that has this share of what is attainable, which never changes, from a time on."""

    def bytes_until(t: Floats) -> Floats:
        before = np.minimum(t, since_s)
        reached: Floats = (before + share * (t - before)) * LINE_BPS / 8
        return reached

    def goodput_bps(start: float, end: float) -> float:
        before, after = bytes_until(np.array([start, end]))
        return float(after - before) * 8 / (end - start)

    return SimpleNamespace(
        flow=SimpleNamespace(src=src, dst="h6"),
        delivery=SimpleNamespace(bytes_until=bytes_until, goodput_bps=goodput_bps),
        attainable=SimpleNamespace(bits=lambda start, end: LINE_BPS * (end - start)),
    )
