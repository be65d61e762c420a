"""Who is accused when links, switches and hosts lose probes, and when that is lifted."""

from collections.abc import Mapping
from functools import cache
from math import sqrt
from random import Random

import pytest

from testbed.mapper.clustermapper import Diagnosis, Finding
from testbed.mapper.inference import (
    BACKGROUND,
    Suspect,
    SuspectKind,
    suspect_directions,
    suspects_on,
)
from testbed.mapper.prober import ProbePath, Prober
from testbed.model.fabric.topology import Topology

pytestmark = [pytest.mark.simulated, pytest.mark.long]

SECOND = 1_000_000_000
PERIOD = SECOND // 4
FABRIC = Topology(name="x", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)

UP = Suspect(SuspectKind.DIRECTION, "p0_t0_0>p0_t1_1")
DOWN = Suspect(SuspectKind.DIRECTION, "p0_t1_1>p0_t0_0")
LINK = Suspect(SuspectKind.LINK, "p0_t0_0--p0_t1_1")
NIC_LINK = Suspect(SuspectKind.LINK, "h1--p2_t0_0")
NIC_UP = Suspect(SuspectKind.DIRECTION, "h1>p2_t0_0")
NIC_DOWN = Suspect(SuspectKind.DIRECTION, "p2_t0_0>h1")
T1 = Suspect(SuspectKind.SWITCH, "p1_t1_3")
T0 = Suspect(SuspectKind.SWITCH, "p3_t0_1")

SMALL = Topology(name="s", planes=2, t0_per_plane=2, t1_per_plane=3, hosts_per_t0=2)
SMALL_NIC = Suspect(SuspectKind.LINK, "h1--p0_t0_0")

FaultySuspect = tuple[Suspect, float, int, int]
"""Who loses which share of packets, from when to when."""


def diagnose(
    *faults: FaultySuspect,
    until: int,
    seed: int = 1,
    background: float = 0.0,
    fabric: Topology = FABRIC,
    lost_ns: list[int] | None = None,
) -> list[Finding]:
    """Who is accused and acquitted; of all probes a share is lost wherever they go.

    When those that are lost were sent is put into `lost_ns`.
    """
    chance = Random(seed)
    prober = Prober(fabric, period_ns=PERIOD, timeout_ns=SECOND // 8, seed=seed, start_ns=0)
    diagnosis = Diagnosis(fabric, PERIOD)
    findings: list[Finding] = []
    for now in range(0, until, PERIOD // 4):
        faulty = {suspect: share for suspect, share, begin, end in faults if begin <= now < end}
        for probe in prober.take_due(now):
            by_chance = background and chance.random() < background
            if not (by_chance or (faulty and hits(faulty, probe.path, chance))):
                prober.arrived(probe.number)
            elif lost_ns is not None:
                lost_ns.append(now)
        if now % PERIOD == 0:
            diagnosis.add(prober.outcomes(now))
            findings += diagnosis.judge(now)
    return findings


def hits(faulty: Mapping[Suspect, float], path: ProbePath, chance: Random) -> bool:
    return any(chance.random() < faulty.get(suspect, 0) for suspect in passed(path))


@cache
def passed(path: ProbePath) -> tuple[Suspect, ...]:
    return tuple(suspects_on(path))


def accused(findings: list[Finding]) -> set[Suspect]:
    standing: set[Suspect] = set()
    for finding in findings:
        (standing.add if finding.raised else standing.discard)(finding.culprit.suspect)
    return standing


@pytest.mark.parametrize("suspect", [UP, DOWN, LINK, NIC_LINK, NIC_UP, NIC_DOWN, T0, T1])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_hard_fault_is_named_and_nobody_else(suspect: Suspect, seed: int) -> None:
    """Within two seconds, after a while of health; a link may be named before its direction."""
    began = 5 * SECOND
    findings = diagnose((suspect, 1.0, began, 9 * SECOND), until=9 * SECOND, seed=seed)
    assert accused(findings) == {suspect}
    faulty = suspect_directions(FABRIC, suspect)
    assert all(suspect_directions(FABRIC, each.culprit.suspect) & faulty for each in findings)
    assert findings[0].time_ns - began <= 2 * SECOND


@pytest.mark.parametrize("suspect", [UP, LINK, NIC_DOWN, T1])
def test_an_accusation_is_lifted_after_healing(suspect: Suspect) -> None:
    findings = diagnose((suspect, 1.0, 2 * SECOND, 6 * SECOND), until=12 * SECOND)
    assert accused(findings) == set()
    assert findings[-1].time_ns >= 6 * SECOND


@pytest.mark.parametrize(("share", "seconds"), [(0.2, 20), (0.05, 60), (0.01, 120)])
def test_a_grey_link_is_named(share: float, seconds: int) -> None:
    """The first estimate is of n losses, few: they tell a share to one part in √n, 95% to two."""
    lost_ns: list[int] = []
    fault = (LINK, share, 0, seconds * SECOND)
    findings = diagnose(fault, until=seconds * SECOND, lost_ns=lost_ns)
    assert {suspect.link for suspect in accused(findings)} == {LINK.link}
    named = next(finding for finding in findings if finding.raised)
    losses = sum(sent_ns < named.time_ns for sent_ns in lost_ns)
    assert named.culprit.loss == pytest.approx(share, rel=2 / sqrt(losses))


@pytest.mark.parametrize("suspect", [LINK, UP, NIC_LINK, NIC_UP])
def test_what_is_grey_is_named_as_it_is(suspect: Suspect) -> None:
    """By chance the losses of a few rounds may be one way only, or seem to be both ways'."""
    assert accused(diagnose((suspect, 0.2, 0, 12 * SECOND), until=12 * SECOND)) == {suspect}


def test_several_faults_at_once_are_told_apart() -> None:
    faults = [(suspect, 1.0, SECOND, 5 * SECOND) for suspect in (UP, T1, NIC_LINK)]
    assert accused(diagnose(*faults, until=5 * SECOND)) == {UP, T1, NIC_LINK}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_two_links_of_a_switch_lose_is_not_blamed_on_it(seed: int) -> None:
    """Though it lies on every way that lost a probe, as few as lead over it in a small fabric."""
    faults = [(LINK, 1.0, SECOND, 6 * SECOND), (SMALL_NIC, 0.2, SECOND, 9 * SECOND)]
    findings = diagnose(*faults, until=9 * SECOND, seed=seed, fabric=SMALL)
    assert {finding.culprit.suspect.link for finding in findings} == {LINK.link, SMALL_NIC.link}


@pytest.mark.parametrize("other", [SMALL_NIC, Suspect(SuspectKind.LINK, "p0_t0_0--p0_t1_2")])
@pytest.mark.parametrize("seed", range(1, 8))
def test_what_two_grey_links_lose_is_blamed_on_nobody_else(other: Suspect, seed: int) -> None:
    """A few rounds' losses may look like their switch's, were it not known suspect is ill."""
    faults = [(LINK, 0.2, SECOND, 15 * SECOND), (other, 0.2, 5 * SECOND, 15 * SECOND)]
    findings = diagnose(*faults, until=15 * SECOND, seed=seed, fabric=SMALL)
    assert {finding.culprit.suspect.link for finding in findings} == {LINK.link, other.link}
    assert accused(findings) == {LINK, other}


@pytest.mark.parametrize("other", [SMALL_NIC, Suspect(SuspectKind.LINK, "p0_t0_0--p0_t1_2")])
@pytest.mark.parametrize("seed", range(1, 8))
def test_two_links_that_turn_grey_at_once_are_told_apart(other: Suspect, seed: int) -> None:
    """Another link may be blamed for some rounds, but not for good."""
    faults = [(suspect, 0.2, SECOND, 12 * SECOND) for suspect in (LINK, other)]
    assert accused(diagnose(*faults, until=12 * SECOND, seed=seed, fabric=SMALL)) == {
        LINK,
        other,
    }


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_link_is_well_again_beside_one_that_stays_ill(seed: int) -> None:
    """What the other one loses of the probes across both does not count against it."""
    faults = [(LINK, 0.2, SECOND, 8 * SECOND), (SMALL_NIC, 0.2, SECOND, 20 * SECOND)]
    findings = diagnose(*faults, until=20 * SECOND, seed=seed, fabric=SMALL)
    assert accused(findings) == {SMALL_NIC}
    lifted = next(f for f in findings if f.culprit.suspect == LINK and not f.raised)
    assert 8 * SECOND < lifted.time_ns < 16 * SECOND


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_grey_switch_takes_the_place_of_its_links(seed: int) -> None:
    """Of which one may be accused first; once it is named itself it stays so."""
    findings = diagnose((T1, 0.2, SECOND, 15 * SECOND), until=15 * SECOND, seed=seed)
    assert accused(findings) == {T1}
    assert [f.raised for f in findings if f.culprit.suspect == T1] == [True]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_healthy_are_not_accused(seed: int) -> None:
    """Though a probe in 10,000 is lost somewhere: some ten in 200 s, now and then two together."""
    assert diagnose(until=200 * SECOND, seed=seed, background=BACKGROUND) == []


def test_what_is_lost_everywhere_hides_no_link() -> None:
    findings = diagnose((LINK, 0.2, 0, 20 * SECOND), until=20 * SECOND, background=BACKGROUND)
    assert {suspect.link for suspect in accused(findings)} == {LINK.link}


def test_one_lost_probe_accuses_nobody() -> None:
    """A machine may lose one packet in tens of thousands; a link that is ill loses more."""
    prober = Prober(FABRIC, period_ns=PERIOD, timeout_ns=SECOND // 8, seed=1, start_ns=0)
    diagnosis = Diagnosis(FABRIC, PERIOD)
    for now in range(0, 60 * SECOND, PERIOD):
        for probe in prober.take_due(now):
            if probe.number % 9_973 != 500:
                prober.arrived(probe.number)
        diagnosis.add(prober.outcomes(now))
        assert diagnosis.judge(now) == []
