"""Whether the Clustermapper finds faulty links and switches, and how soon, in virtual time.

Only probes cross the fabric: they have a class of their own, ahead of data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.mapper.inference import BACKGROUND, Suspect, SuspectKind, suspect_directions
from testbed.model.fabric.names import link_of
from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import Impairment
from testbed.model.faults.targets import links_of_node, target_directions
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Clustermapper as Settings
from testbed.model.units import NS_PER_S, show_share
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.mapper import SimulatedAgents
from testbed.studies.bench.measure import Measurement, Setting, at_least, at_most, no_target

TOPOLOGY = "clos-4plane"
HEALTHY_ROUNDS = 4
"""Rounds of probes before the fault: by then every path of probes has been used."""

HARD_ROUNDS = 12
"""Rounds within which a dead link, direction or switch has to be named."""

DEAD = Impairment(blackhole=True)

GREY_SHARES = (0.2, 0.05, 0.01)
GREY_LINKS = 8

CROSSINGS = 3
"""Probes of a round that cross a T0-T1 link in each direction; more cross a NIC's link."""

ENOUGH_LOST = 30
"""A grey link has to be named within the time in which so many of its probes are to be expected
lost: several times as many as the evidence takes, and fewer than 12 in one case of 15,000."""

TOGETHER_ROUNDS = 50
"""Rounds within which both a dead link and a grey port of one T0 have to be named."""

HEALTHY_SEEDS = (1, 2, 3, 4)
HEALTHY_NS = 3600 * NS_PER_S // len(HEALTHY_SEEDS)

LONGEST_PATH = 6
"""Directions that a probe crosses at most."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """How a search for faults ended.

    Attributes:
        rounds: from the faults until a link of each had been accused; None if one never was.
        exact: whether the accusations at the end name the faults and nothing else.
        innocent: how many accusations named links without a fault.
    """

    rounds: float | None
    exact: bool
    innocent: int


def localisation(setting: Setting) -> list[Measurement]:
    """Break every link, direction and switch by itself, then grey ones, then two at once."""
    topology = load_topology(TOPOLOGY)
    dead = [
        _search(topology, {suspect: DEAD}, HARD_ROUNDS, setting)
        for suspect in _all_suspects(topology)
    ]
    figures = [
        *_figures("dead link, direction or switch", dead, exact=True),
        *_grey(topology, setting),
        *_together(topology, setting),
    ]
    innocent = sum(_healthy(topology, seed, setting) for seed in HEALTHY_SEEDS)
    return [*figures, at_most("accusations in a healthy hour", "", [innocent], 0)]


def _grey(topology: Topology, setting: Setting) -> list[Measurement]:
    draw = Random(1)  # noqa: S311 - repeatable
    links = draw.sample(sorted(topology.links), GREY_LINKS)
    directions = [draw.choice(topology.links[link].directions) for link in links]
    trials = (
        ("link", SuspectKind.LINK, links, 2 * CROSSINGS),
        ("direction", SuspectKind.DIRECTION, directions, CROSSINGS),
    )
    figures = []
    for share in GREY_SHARES:
        for what, kind, names, crossings in trials:
            rounds = round(ENOUGH_LOST / (crossings * share))
            grey = [{Suspect(kind, name): Impairment(loss=share)} for name in names]
            searches = [_search(topology, faults, rounds, setting) for faults in grey]
            figures += _within(f"{what} that loses {show_share(share)}", rounds, searches)
    return figures


def _together(topology: Topology, setting: Setting) -> list[Measurement]:
    """A dead link and a grey port at each T0: the T0 is on every path that loses a probe."""
    draw = Random(1)  # noqa: S311 - repeatable
    trials = []
    for t0 in (switch for switch in topology.switches if switch.tier is Tier.T0):
        links = links_of_node(topology, t0)
        up = draw.choice([link.name for link in links if link.upper.node != t0])
        port = draw.choice([link.name for link in links if link.upper.node == t0])
        faults = {
            Suspect(SuspectKind.LINK, up): DEAD,
            Suspect(SuspectKind.LINK, port): Impairment(loss=GREY_SHARES[0]),
        }
        trials.append(_search(topology, faults, TOGETHER_ROUNDS, setting))
    what = f"dead link and port that loses {show_share(GREY_SHARES[0])}, at one T0"
    return _within(what, TOGETHER_ROUNDS, trials)


def _within(what: str, rounds: int, trials: Sequence[_Trial]) -> list[Measurement]:
    """Figures of searches; each ended after the number of rounds given."""
    exact = sum(trial.exact for trial in trials) / len(trials)
    return [
        *_figures(f"{what}, within {rounds} rounds", trials, exact=False),
        no_target(f"{what}, by then: named and nothing else", "", [exact]),
    ]


def _figures(what: str, trials: Sequence[_Trial], *, exact: bool) -> list[Measurement]:
    """Figures of searches; with `exact` a search succeeds only if it named nothing else."""
    rounds = [trial.rounds for trial in trials if trial.rounds is not None]
    named = [trial.exact if exact else trial.rounds is not None for trial in trials]
    return [
        at_least(f"{what}: named", "", [sum(named) / len(trials)], 1.0),
        at_most(f"{what}: innocent accused", "", [sum(trial.innocent for trial in trials)], 0),
        no_target(f"{what}: until accused", "rounds", rounds or [inf]),
    ]


def _all_suspects(topology: Topology) -> list[Suspect]:
    links = topology.links.values()
    return [
        *(Suspect(SuspectKind.LINK, link.name) for link in links),
        *(Suspect(SuspectKind.DIRECTION, name) for link in links for name in link.directions),
        *(Suspect(SuspectKind.SWITCH, switch.name) for switch in topology.switches),
    ]


def _search(
    topology: Topology, faults: Mapping[Suspect, Impairment], rounds: int, setting: Setting
) -> _Trial:
    """Let probes search, for a number of rounds, for faults that begin after HEALTHY_ROUNDS."""
    setting.progress(", ".join(f"{state.as_record} {at.name}" for at, state in faults.items()))
    period_ns = _period_ns(topology)
    engine, fabric, mapper, findings = _probing(topology, period_ns)
    directions = {suspect: suspect_directions(topology, suspect) for suspect in faults}
    began = HEALTHY_ROUNDS * period_ns
    engine.run(began)
    for suspect, state in faults.items():
        for direction in directions[suspect]:
            fabric.impair(direction, state)
    engine.run(began + rounds * period_ns)
    accused = [(t, _links(topology, name)) for t, raised, _, name in findings if raised]
    faulty = [_links(topology, suspect.name) for suspect in faults]
    first = [min((t for t, links in accused if links <= of_one), default=inf) for of_one in faulty]
    until = (max(first) - began) / period_ns
    return _Trial(
        rounds=until if until < inf else None,
        exact=mapper.denied_directions == frozenset().union(*directions.values()),
        innocent=sum(not any(links <= of_one for of_one in faulty) for _, links in accused),
    )


def _healthy(topology: Topology, seed: int, setting: Setting) -> int:
    """The number of accusations in a quarter of an hour without a fault.

    The longest paths lose as many probes as the search tolerates: `BACKGROUND`.
    """
    setting.progress(f"probing a healthy fabric for a quarter of an hour, seed {seed}")
    engine, fabric, _, findings = _probing(topology, _period_ns(topology), seed)
    for link in topology.links.values():
        for direction in link.directions:
            fabric.impair(direction, Impairment(loss=BACKGROUND / LONGEST_PATH))
    engine.run(HEALTHY_NS)
    return len(findings)


def _probing(
    topology: Topology, period_ns: int, seed: int = 1
) -> tuple[Engine, Fabric, Clustermapper, list[tuple[int, bool, str, str]]]:
    """A fabric that only probes cross, and the list to which findings are appended."""
    engine = Engine()
    fabric = Fabric(topology, engine, seed)
    findings: list[tuple[int, bool, str, str]] = []
    mapper = Clustermapper(
        MapperPlan(topology, period_ns, seed),
        0,
        lambda *_: None,
        lambda t, raised, kind, name, *_: findings.append((t, raised, kind, name)),
    )
    SimulatedAgents(topology, engine, fabric, mapper, lambda _: None)
    return engine, fabric, mapper, findings


def _period_ns(topology: Topology) -> int:
    return Settings().period_ns(topology)


def _links(topology: Topology, name: str) -> frozenset[str]:
    return frozenset(map(link_of, target_directions(topology, name) or ()))
