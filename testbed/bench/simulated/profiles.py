"""The two profiles of NSCC side by side, in virtual time (docs/congestion.md)."""

from collections.abc import Callable, Mapping

from testbed.bench.measure import Figure, Setting, at_least, at_most
from testbed.bench.simulated.congestion import (
    FAIR,
    MOVED_APART,
    SHORT_BDP,
    Measured,
    incast_scenario,
    measure,
    shared_scenario,
)
from testbed.files.scenarios import load_scenario
from testbed.files.topologies import load_topology
from testbed.model.fabric.queue import Queue, Queues
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc

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


def _permutation() -> Scenario:
    return load_scenario("permutation").model_copy(update={"duration": 3_000_000_000})


def _incast_figures(case: str, run: Measured) -> list[Figure]:
    return [
        at_least(f"{case}: Jain's index", "", [run.jain], FAIR),
        at_most(
            f"{case}: last hop's backlog, p99", "BDP", [_receiver_backlog(case, run)], SHORT_BDP
        ),
        at_least(f"{case}: goodput / last hop", "", [sum(run.shares) / len(run.shares)], FULL),
        at_most(f"{case}: packets lost whole", "", [run.dropped], 0),
    ]


def _receiver_backlog(case: str, run: Measured) -> float:
    """The p99 backlog of the receiver's last hops, which are the busiest, in BDPs."""
    planes = _CASES[case.partition(",")[0]][0]().topology.planes
    backlogs = sorted(
        backlog for sample in run.steady for backlog in sorted(sample.backlogs)[-planes:]
    )
    return backlogs[int(len(backlogs) * 0.99)]


def _permutation_figures(case: str, run: Measured) -> list[Figure]:
    return [at_least(f"{case}: slowest flow / attainable", "", [min(run.shares)], FULL)]


def _shared_figures(case: str, run: Measured) -> list[Figure]:
    return [at_least(f"{case}: goodput / attainable", "", run.shares, MOVED_APART, every=True)]


def _dead_figures(case: str, run: Measured) -> list[Figure]:
    left = 5 / 8 / 2  # the two hosts of a T0 share its uplink in each plane
    return [
        at_least(
            f"{case}: goodput / what is left",
            "",
            [sum(run.shares) / len(run.shares) / left],
            REMAINING,
        ),
        at_least(f"{case}: Jain's index", "", [run.jain], FAIR),
    ]


_CASES: Mapping[str, tuple[Callable[[], Scenario], Callable[[str, Measured], list[Figure]]]] = {
    "incast 7:1": (lambda: incast_scenario(1, Queues()), _incast_figures),
    "incast 15:1": (_incast_of_15, _incast_figures),
    "permutation": (_permutation, _permutation_figures),
    "shared path": (lambda: shared_scenario(Queue()), _shared_figures),
    "3 of 8 planes dead": (_three_of_eight_dead, _dead_figures),
}


def nscc(setting: Setting) -> list[Figure]:
    """Both profiles over the cases that decide which is the default."""
    figures: list[Figure] = []
    for case, (scenario, figures_of) in _CASES.items():
        for profile in PROFILES:
            setting.progress(f"{case}, {profile}")
            chosen = scenario()
            transport = chosen.transport
            if not isinstance(transport, Mrc):
                raise TypeError(f"{chosen.name} does not use MRC")
            changed = transport.model_copy(update={"nscc": profile})
            run = measure(chosen.model_copy(update={"transport": changed}))
            figures += figures_of(f"{case}, {profile}", run)
    return figures
