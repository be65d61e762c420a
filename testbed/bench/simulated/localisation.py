"""Whether probes name what is ill, and how soon: in virtual time, where many faults can be tried.

Only probes cross the fabric: they travel in a class of their own, ahead of data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from testbed.bench.figure import Figure, at_least, at_most, no_target
from testbed.bench.setting import Setting
from testbed.files.topologies import load_topology
from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.mapper.evidence import BACKGROUND
from testbed.mapper.suspects import Suspect, SuspectKind, suspect_directions
from testbed.model.fabric.names import link_of
from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import Impairment
from testbed.model.faults.targets import links_of_node, target_directions
from testbed.model.scenario import Clustermapper as Settings
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.mapper import Agents

TOPOLOGY = "clos-4plane"
HEALTHY_ROUNDS = 4
"""Before the fault; the last of the ways of probes have then been taken."""

HARD_ROUNDS = 12
"""So long a dead link, direction or switch has to be named."""

DEAD = Impairment(blackhole=True)

GREY_SHARES = (0.2, 0.05, 0.01)
GREY_LINKS = 8

CROSSINGS = 3
"""Probes of a round that cross a T0-T1 link each way; a NIC's link is crossed by more."""

ENOUGH_LOST = 30
"""A grey link has to be named within the time in which so many of its probes are to be expected
lost: several times as many as the evidence takes, and fewer than 12 in one case of 15,000."""

TOGETHER_ROUNDS = 50
"""So long a dead link and a grey port of one T0 have to be named, both."""

HEALTHY_SEEDS = (1, 2, 3, 4)
HEALTHY_NS = 3600 * 10**9 // len(HEALTHY_SEEDS)

LONGEST_WAY = 6
"""Directions that a probe crosses at the most."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """How the search for culprits ended.

    `rounds`: from the fault until a link of each had been accused; None if one never was. `named`:
    the standing accusations at the end are just the culprits. `innocent`: accusations that were
    not of links of one culprit.
    """

    rounds: float | None
    named: bool
    innocent: int


def localisation(setting: Setting) -> list[Figure]:
    """Break everything that can break by itself, one after the other."""
    topology = load_topology(TOPOLOGY)
    hard = [
        _search(topology, {suspect: DEAD}, HARD_ROUNDS, setting)
        for suspect in _everything(topology)
    ]
    figures = [
        *_figures("dead link, direction or switch", hard, whole=True),
        *_grey(topology, setting),
        *_together(topology, setting),
    ]
    innocent = sum(_healthy(topology, seed, setting) for seed in HEALTHY_SEEDS)
    return [*figures, at_most("accusations in a healthy hour", "", [innocent], 0)]


def _grey(topology: Topology, setting: Setting) -> list[Figure]:
    draw = Random(1)  # noqa: S311 - repeatable
    links = draw.sample(sorted(topology.links), GREY_LINKS)
    ways = [draw.choice(topology.links[link].directions) for link in links]
    both = [Suspect(SuspectKind.LINK, link) for link in links]
    one = [Suspect(SuspectKind.DIRECTION, way) for way in ways]
    figures = []
    for share in GREY_SHARES:
        for what, suspects, crossings in (
            (f"link that loses {share:.0%}", both, 2 * CROSSINGS),
            (f"direction that loses {share:.0%}", one, CROSSINGS),
        ):
            rounds = round(ENOUGH_LOST / (crossings * share))
            state = Impairment(loss=share)
            trials = [_search(topology, {who: state}, rounds, setting) for who in suspects]
            figures += _within(what, rounds, trials)
    return figures


def _together(topology: Topology, setting: Setting) -> list[Figure]:
    """A dead link and a grey port at each T0: it lies on every way that loses a probe."""
    draw = Random(1)  # noqa: S311 - repeatable
    trials = []
    for t0 in (switch for switch in topology.switches if switch.tier is Tier.T0):
        links = links_of_node(topology, t0)
        up = draw.choice([link.name for link in links if link.upper.node != t0])
        port = draw.choice([link.name for link in links if link.upper.node == t0])
        ill = {
            Suspect(SuspectKind.LINK, up): DEAD,
            Suspect(SuspectKind.LINK, port): Impairment(loss=GREY_SHARES[0]),
        }
        trials.append(_search(topology, ill, TOGETHER_ROUNDS, setting))
    what = f"dead link and port that loses {GREY_SHARES[0]:.0%}, at one T0"
    return _within(what, TOGETHER_ROUNDS, trials)


def _within(what: str, rounds: int, trials: Sequence[_Trial]) -> list[Figure]:
    """Of searches that end after so many rounds: who was named in them, and who in the end."""
    exact = sum(trial.named for trial in trials) / len(trials)
    return [
        *_figures(f"{what}, within {rounds} rounds", trials, whole=False),
        no_target(f"{what}, by then: named and nothing else", "", [exact]),
    ]


def _figures(what: str, trials: Sequence[_Trial], *, whole: bool) -> list[Figure]:
    rounds = [trial.rounds for trial in trials if trial.rounds is not None]
    right = [trial.named if whole else trial.rounds is not None for trial in trials]
    return [
        at_least(f"{what}: named", "", [sum(right) / len(trials)], 1.0),
        at_most(f"{what}: innocent accused", "", [sum(trial.innocent for trial in trials)], 0),
        no_target(f"{what}: until accused", "rounds", rounds or [float("inf")]),
    ]


def _everything(topology: Topology) -> list[Suspect]:
    links = topology.links.values()
    return [
        *(Suspect(SuspectKind.LINK, link.name) for link in links),
        *(Suspect(SuspectKind.DIRECTION, way) for link in links for way in link.directions),
        *(Suspect(SuspectKind.SWITCH, switch.name) for switch in topology.switches),
    ]


def _search(
    topology: Topology, ill: Mapping[Suspect, Impairment], rounds: int, setting: Setting
) -> _Trial:
    setting.progress(", ".join(f"{state.as_record} {who.name}" for who, state in ill.items()))
    period_ns = _period_ns(topology)
    engine, fabric, mapper, findings = _probing(topology, period_ns)
    struck = {who: suspect_directions(topology, who) for who in ill}
    began = HEALTHY_ROUNDS * period_ns
    engine.run(began)
    for who, state in ill.items():
        for direction in struck[who]:
            fabric.impair(direction, state)
    engine.run(began + rounds * period_ns)
    accused = [(t, _links(topology, name)) for t, raised, _, name in findings if raised]
    mine = [_links(topology, who.name) for who in ill]
    first = [min((t for t, links in accused if links <= own), default=float("inf")) for own in mine]
    until = (max(first) - began) / period_ns
    return _Trial(
        rounds=until if until < float("inf") else None,
        named=mapper.denied_directions == frozenset().union(*struck.values()),
        innocent=sum(not any(links <= own for own in mine) for _, links in accused),
    )


def _healthy(topology: Topology, seed: int, setting: Setting) -> int:
    """How often somebody is accused in a quarter of an hour in which nobody is ill.

    The longest ways lose as many probes as the search takes for nothing: `BACKGROUND`.
    """
    setting.progress(f"probing a healthy fabric for a quarter of an hour, seed {seed}")
    engine, fabric, _, findings = _probing(topology, _period_ns(topology), seed)
    for link in topology.links.values():
        for direction in link.directions:
            fabric.impair(direction, Impairment(loss=BACKGROUND / LONGEST_WAY))
    engine.run(HEALTHY_NS)
    return len(findings)


def _probing(
    topology: Topology, period_ns: int, seed: int = 1
) -> tuple[Engine, Fabric, Clustermapper, list[tuple[int, bool, str, str]]]:
    """A fabric with nothing on it but probes, and where their findings go."""
    engine = Engine()
    fabric = Fabric(topology, engine, seed)
    findings: list[tuple[int, bool, str, str]] = []
    mapper = Clustermapper(
        MapperPlan(topology, period_ns, seed),
        0,
        lambda *_: None,
        lambda t, raised, kind, name, *_: findings.append((t, raised, kind, name)),
    )
    Agents(topology, engine, fabric, mapper, lambda _: None)
    return engine, fabric, mapper, findings


def _period_ns(topology: Topology) -> int:
    return round(Settings().period * topology.dilation)


def _links(topology: Topology, name: str) -> frozenset[str]:
    return frozenset(map(link_of, target_directions(topology, name) or ()))
