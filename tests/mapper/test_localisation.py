"""The Clustermapper names what is faulty and nothing else, in the time of docs/clustermapper.md.

In virtual time; only probes cross the fabric: they have a class of their own, ahead of data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from random import Random

import pytest

from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.mapper.inference import BACKGROUND, Suspect, SuspectKind, suspect_directions
from testbed.model.fabric.names import link_of
from testbed.model.fabric.nodes import Tier
from testbed.model.faults.impairment import Impairment
from testbed.model.faults.schedule import links_of_node, target_directions
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Clustermapper as Settings
from testbed.model.units import NS_PER_S
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.mapper import SimulatedAgents

pytestmark = [pytest.mark.simulated, pytest.mark.long]

TOPOLOGY = load_topology("clos-4plane")
PERIOD_NS = Settings().period_ns(TOPOLOGY)

HEALTHY_ROUNDS = 4
"""Rounds of probes before the fault: by then every path of probes has been used."""

DEAD = Impairment(blackhole=True)

ENOUGH_LOST = 30
"""A grey link has to be named within the time in which so many of its probes are to be expected
lost: several times as many as the evidence takes, and fewer than 12 in one case of 15,000."""

CROSSINGS = 3
"""Probes of a round that cross a T0-T1 link in each direction; more cross a NIC's link."""

LONGEST_PATH = 6
"""Directions that a probe crosses at most."""


@dataclass(frozen=True, slots=True)
class Search:
    """How a search for faults ended.

    Attributes:
        rounds: from the faults until a link of each had been accused; infinite if one never was.
        exact: whether the accusations at the end name the faults and nothing else.
        innocent: how many accusations named links without a fault.
    """

    rounds: float
    exact: bool
    innocent: int


@pytest.mark.parametrize("kind", SuspectKind)
def test_each_dead_link_direction_and_switch_is_named_and_nothing_else(kind: SuspectKind) -> None:
    """Of the first plane and the last: those between them have nothing of their own."""
    links = TOPOLOGY.links.values()
    names = {
        SuspectKind.LINK: [link.name for link in links],
        SuspectKind.DIRECTION: [name for link in links for name in link.directions],
        SuspectKind.SWITCH: [switch.name for switch in TOPOLOGY.switches],
    }[kind]
    ends = [name for name in names if "p0_" in name or "p3_" in name]
    assert len(ends) == len(names) / 2
    for name in ends:
        found = search({Suspect(kind, name): DEAD}, rounds=12)
        assert (found.exact, found.innocent) == (True, 0), name


@pytest.mark.parametrize("share", [0.2, 0.05, 0.01])
@pytest.mark.parametrize("kind", [SuspectKind.LINK, SuspectKind.DIRECTION])
def test_what_loses_some_packets_is_named_in_time(kind: SuspectKind, share: float) -> None:
    draw = Random(1)
    links = draw.sample(sorted(TOPOLOGY.links), 8 if share > 0.01 else 2)
    is_link = kind is SuspectKind.LINK
    rounds = round(ENOUGH_LOST / (CROSSINGS * (2 if is_link else 1) * share))
    for link in links:
        name = link if is_link else draw.choice(TOPOLOGY.links[link].directions)
        found = search({Suspect(kind, name): Impairment(loss=share)}, rounds)
        assert (found.rounds <= rounds, found.innocent) == (True, 0), name
        if share > 0.01:  # else the link may still be accused for one direction
            assert found.exact, name


def test_a_dead_link_and_a_port_that_loses_at_the_same_t0_are_both_named() -> None:
    """The T0 is on every path that loses a probe."""
    draw = Random(1)
    for t0 in (switch for switch in TOPOLOGY.switches if switch.tier is Tier.T0):
        links = links_of_node(TOPOLOGY, t0)
        up = draw.choice([link.name for link in links if link.upper.node != t0])
        port = draw.choice([link.name for link in links if link.upper.node == t0])
        faults = {
            Suspect(SuspectKind.LINK, up): DEAD,
            Suspect(SuspectKind.LINK, port): Impairment(loss=0.2),
        }
        found = search(faults, rounds=50)
        assert (found.exact, found.innocent) == (True, 0), t0.name
        assert found.rounds <= 50, t0.name


def test_nobody_is_accused_in_a_quarter_of_an_hour_of_a_healthy_fabric() -> None:
    """The longest paths lose as many probes as the search tolerates: `BACKGROUND`."""
    engine, fabric, _, findings = probing()
    for link in TOPOLOGY.links.values():
        for direction in link.directions:
            fabric.impair(direction, Impairment(loss=BACKGROUND / LONGEST_PATH))
    engine.run(900 * NS_PER_S)
    assert findings == []


def search(faults: Mapping[Suspect, Impairment], rounds: int) -> Search:
    """Let probes search, for a number of rounds, for faults that begin after HEALTHY_ROUNDS."""
    engine, fabric, mapper, findings = probing()
    directions = {suspect: suspect_directions(TOPOLOGY, suspect) for suspect in faults}
    began = HEALTHY_ROUNDS * PERIOD_NS
    engine.run(began)
    for suspect, state in faults.items():
        for direction in directions[suspect]:
            fabric.impair(direction, state)
    engine.run(began + rounds * PERIOD_NS)
    accused = [(t, links_of(name)) for t, raised, name in findings if raised]
    faulty = [links_of(suspect.name) for suspect in faults]
    first = [min((t for t, links in accused if links <= of_one), default=inf) for of_one in faulty]
    return Search(
        rounds=(max(first) - began) / PERIOD_NS,
        exact=mapper.denied_directions == frozenset().union(*directions.values()),
        innocent=sum(not any(links <= of_one for of_one in faulty) for _, links in accused),
    )


def probing() -> tuple[Engine, Fabric, Clustermapper, list[tuple[int, bool, str]]]:
    """A fabric that only probes cross, and the list to which findings are appended."""
    engine = Engine()
    fabric = Fabric(TOPOLOGY, engine, seed=1)
    findings: list[tuple[int, bool, str]] = []
    mapper = Clustermapper(
        MapperPlan(TOPOLOGY, PERIOD_NS, 1),
        0,
        lambda *_: None,
        lambda t, raised, _kind, name, *_: findings.append((t, raised, name)),
    )
    SimulatedAgents(TOPOLOGY, engine, fabric, mapper, lambda _: None)
    return engine, fabric, mapper, findings


def links_of(name: str) -> frozenset[str]:
    return frozenset(map(link_of, target_directions(TOPOLOGY, name) or ()))
