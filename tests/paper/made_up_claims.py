"""The runs of what the paper says in its text, made up as it says but for what is changed."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from testbed.campaign.store import Run
from testbed.model.fabric.addressing import Path
from testbed.model.summary import Time
from testbed.paper.experiments.claims import REMAP_RTTS
from testbed.results.analysis.delivery import Floats
from testbed.results.analysis.ev_states import Span

from .made_up import LINE_BPS, faults_of, flow, run, scenario_of

Runs = dict[str, Run]


def planes_runs(half: float = 0.5, thin: float = 0.25) -> Runs:
    made = {}
    for name, during in (("plane-half", half), ("plane-thin", thin)):
        (fault,) = faults = faults_of(scenario_of(name))
        made[name] = run(_steady(during, since_s=fault.effective_s), faults=faults)
    return made


def remap_runs(
    stalls: Mapping[int, float] | None = None, kept: Mapping[int, float] | None = None
) -> Runs:
    """By the base RTTs that the NIC needs: the stall, and what is used of what is left."""
    made = {}
    for rtts in REMAP_RTTS:
        name = f"port-remap-{rtts}"
        stall = {**dict.fromkeys(REMAP_RTTS, 1.5), **(stalls or {})}[rtts]
        share = {**dict.fromkeys(REMAP_RTTS, 0.99), **(kept or {})}[rtts]
        faults = faults_of(scenario_of(name), stall=Time({"rtt": stall}))
        made[name] = run(_steady(share), faults=faults)
    return made


def lossy_nic_runs(exact: float = 1.0, *, kept: bool = False) -> Runs:
    """The sender has left plane 1, but perhaps one EV of it, or all planes."""
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
        spans = {
            ev: (Span(0.0, moment + 1, "GOOD", plane != 1 or (kept and t1 == 0), ""),)
            for ev, (plane, t1) in evs.items()
        }
        data = {
            "topology": scenario.topology,
            "path_of": lambda _flow, ev, evs=evs: Path(*evs[ev]),
        }
        found = SimpleNamespace(exact=exact)
        made[name] = run(
            flow("h0", "h4", spans=spans), faults=faults, data=data, localisation=found
        )
    return made


def probes_runs(exact: float = 1.0, wrong: int = 0, rounds: int | None = 3) -> Runs:
    found = SimpleNamespace(exact=exact, accusations_wrong=wrong, naming_rounds=rounds)
    return {"probe-each-ms": run(localisation=found)}


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
        flow=SimpleNamespace(src=src),
        delivery=SimpleNamespace(bytes_until=bytes_until, goodput_bps=goodput_bps),
        attainable=SimpleNamespace(bits=lambda start, end: LINE_BPS * (end - start)),
    )
