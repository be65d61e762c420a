"""The two profiles of NSCC side by side, in virtual time (docs/congestion.md).

Each repeat has a seed of its own, from 1 on. Only two flows that share a path keep theirs: with
other seeds they have no path in common.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import count

from testbed.model.errors import InputError
from testbed.model.fabric.queue import Queue, Queues
from testbed.model.files.catalog import SCENARIOS
from testbed.model.files.scenarios import load_scenario, nominal
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.model.summary.metric import NEVER
from testbed.model.transport import Mrc
from testbed.sim.run import require_simulated
from testbed.studies.bench.measure import Measurement, Setting, at_least, at_most, no_target
from testbed.studies.bench.runs import simulate_runs, with_transport
from testbed.studies.bench.simulated.congestion import (
    FAIR,
    MOVED_APART,
    SHORT_BDP,
    Measured,
    incast_scenario,
    measure,
    shared_scenario,
)

PROFILES = ("incast", "uec")
FULL = 0.97
"""Of attainable."""

REMAINING = 0.95
"""Of what is left when three of eight planes are dead."""


def _incast_of_15() -> Scenario:
    topology = load_topology("clos-16host")
    return Scenario.model_validate(
        {
            "name": "incast-15",
            "topology": topology,
            "duration": "48 s",
            "workload": {
                "kind": "incast",
                "senders": [f"h{number}" for number in range(15)],
                "target": "h15",
                "message_size": "1 MiB",
            },
        }
    )


def _three_of_eight_dead() -> Scenario:
    """Four flows over eight planes of one T1 each; three T1s forward nothing from the start."""
    topology = load_topology("clos-8plane").model_copy(update={"t1_per_plane": 1})
    return Scenario.model_validate(
        {
            "name": "three-of-eight",
            "topology": topology,
            "duration": "6 s",
            "workload": {"kind": "permutation"},
            "timeline": [
                {
                    "kind": "blackhole",
                    "target": [f"p{plane}_t1_0" for plane in range(3)],
                    "at": "0 s",
                    "for": "6 s",
                }
            ],
        }
    )


def fault_scenarios() -> Iterator[Scenario]:
    """Each of the project's scenarios with faults that uses MRC and can be simulated."""
    for file in sorted(SCENARIOS.glob("*.yaml")):
        scenario = load_scenario(str(file), nominal)
        if not isinstance(scenario.transport, Mrc) or not scenario.timeline:
            continue
        try:
            require_simulated(scenario)
        except InputError:
            continue
        yield scenario


def _permutation() -> Scenario:
    return load_scenario("permutation").model_copy(update={"duration": 3_000_000_000})


def _incast_figures(case: str, runs: list[Measured]) -> Iterator[Measurement]:
    backlogs = [_receiver_backlog(case, run) for run in runs]
    lost = [run.dropped for run in runs]
    yield at_least(f"{case}: Jain's index", "", [run.jain for run in runs], FAIR)
    yield at_most(f"{case}: last hop's backlog, p99", "BDP", backlogs, SHORT_BDP)
    yield at_least(f"{case}: goodput / last hop", "", [_mean_share(run) for run in runs], FULL)
    yield at_most(f"{case}: packets lost whole", "", lost, 0)


def _receiver_backlog(case: str, run: Measured) -> float:
    """The p99 backlog of the receiver's last hops, which are the busiest, in BDPs."""
    planes = _CASES[case.partition(",")[0]][0]().topology.planes
    backlogs = sorted(
        backlog for sample in run.steady for backlog in sorted(sample.backlogs)[-planes:]
    )
    return backlogs[int(len(backlogs) * 0.99)]


def _mean_share(run: Measured) -> float:
    return sum(run.shares) / len(run.shares)


def _permutation_figures(case: str, runs: list[Measured]) -> Iterator[Measurement]:
    slowest = [min(run.shares) for run in runs]
    yield at_least(f"{case}: slowest flow / attainable", "", slowest, FULL)


def _shared_figures(case: str, runs: list[Measured]) -> Iterator[Measurement]:
    slowest = [min(run.shares) for run in runs]
    yield at_least(f"{case}: slower flow / attainable", "", slowest, MOVED_APART)


def _dead_figures(case: str, runs: list[Measured]) -> Iterator[Measurement]:
    left = 5 / 8 / 2  # the two hosts of a T0 share its uplink in each plane
    goodput = [_mean_share(run) / left for run in runs]
    yield at_least(f"{case}: goodput / what is left", "", goodput, REMAINING)
    yield at_least(f"{case}: Jain's index", "", [run.jain for run in runs], FAIR)


_CASES: Mapping[
    str, tuple[Callable[[], Scenario], Callable[[str, list[Measured]], Iterator[Measurement]]]
] = {
    "incast 7:1": (lambda: incast_scenario(1, Queues()), _incast_figures),
    "incast 15:1": (_incast_of_15, _incast_figures),
    "permutation": (_permutation, _permutation_figures),
    "shared path": (lambda: shared_scenario(Queue()), _shared_figures),
    "3 of 8 planes dead": (_three_of_eight_dead, _dead_figures),
}


def nscc(setting: Setting) -> list[Measurement]:
    """Both profiles over the cases that decide which is the default, and the bounds missed."""
    figures: dict[str, list[Measurement]] = {profile: [] for profile in PROFILES}
    for case, (scenario, figures_of) in _CASES.items():
        for profile in PROFILES:
            named = f"{case}, {profile}"
            with_profile = with_transport(scenario(), {"nscc": profile})
            seeds = count(1)
            runs = setting.repeat(
                named,
                lambda: measure(_seeded(with_profile, next(seeds))),  # noqa: B023
            )
            figures[profile] += figures_of(named, runs)
    cases = {
        f"{base.name}, {profile}": with_transport(base, {"nscc": profile})
        for base in fault_scenarios()
        for profile in PROFILES
    }
    for case, summaries in simulate_runs("nscc", cases, setting).items():
        profile = case.rpartition(", ")[2]
        figures[profile] += _fault_figures(case, summaries)
    missed = [
        no_target(f"bounds missed, {profile}", "", [sum(not figure.holds for figure in of_profile)])
        for profile, of_profile in figures.items()
    ]
    return [*(figure for of_profile in figures.values() for figure in of_profile), *missed]


def _seeded(scenario: Scenario, seed: int) -> Scenario:
    """A scenario with the seed of a repeat; two flows that share a path keep theirs."""
    return scenario if scenario.name == "shared" else scenario.model_copy(update={"seed": seed})


def _fault_figures(case: str, summaries: list[Summary]) -> Iterator[Measurement]:
    """Whether all flows of a scenario with faults recovered and nothing was lost, and how fast."""
    never = [
        sum(
            flow.recovery is not None and flow.recovery.rtt == NEVER
            for fault in summary.faults
            for flow in fault.flows
        )
        for summary in summaries
    ]
    damaged = [s.integrity.bytes_lost + s.integrity.bytes_corrupted for s in summaries]
    recoveries = [
        fault.recovery.rtt
        for summary in summaries
        for fault in summary.faults
        if fault.recovery is not None and fault.recovery.rtt != NEVER
    ]
    goodput = [min(flow.run_fraction or 0.0 for flow in s.flows) for s in summaries]
    yield at_most(f"{case}: flows that did not recover", "", never, 0)
    yield at_most(f"{case}: bytes lost or corrupted", "", damaged, 0)
    yield no_target(f"{case}: goodput of attainable", "", goodput)
    if recoveries:
        yield no_target(f"{case}: recovery", "RTT", recoveries)
