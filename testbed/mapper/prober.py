"""When which probe is sent, and whether it came back."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from itertools import pairwise
from random import Random

from testbed.model.fabric.addressing import address_via
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

# --------------------------------------------------------------------------------------------------
# The paths of probes, and the order in which they are sent.
#
#     loop       h, T0, h                  a NIC-T0 link, there and back
#     peer       h, T0, h'                 one NIC-T0 link up, another one down
#     fabric     h, T0, T1, T0, h          a T0-T1 link, there and back
#     crossed    h, T0, T1x, T0b, T1y, T0, h    four T0-T1 links, each in one direction only
#
# A round sends one loop and one peer probe for every NIC port, and one fabric and one crossed probe
# for every T0-T1 link. The hosts of a rack take turns, and so do peers, other racks and other T1s:
# over some rounds many different paths cross every link, which tells the links apart.


@dataclass(frozen=True, slots=True)
class ProbePath:
    """The path of a probe.

    Attributes:
        plane: its plane.
        nodes: its nodes in order; the first sends, the last receives.
    """

    plane: int
    nodes: tuple[Node, ...]

    @property
    def sender(self) -> Node:
        return self.nodes[0]

    @property
    def receiver(self) -> Node:
        """The host that receives, often the sender."""
        return self.nodes[-1]

    @property
    def directions(self) -> tuple[str, ...]:
        """The link directions that it crosses, in order: `h0>p0_t0_0`."""
        return tuple(f"{near.name}>{far.name}" for near, far in pairwise(self.nodes))

    @property
    def name(self) -> str:
        """Every node in order: `p2:h0>p2_t0_0>h0`."""
        return f"p{self.plane}:" + ">".join(node.name for node in self.nodes)

    def destination(self, topology: Topology) -> IPv6Address:
        return address_via(topology, self.nodes, self.plane)


def probes_per_round(topology: Topology) -> int:
    """The number of probes in a round, the same in each."""
    return len(_probes(topology, 0))


def probe_round(topology: Topology, number: int, seed: int) -> tuple[ProbePath, ...]:
    """The probes of a round in the order of sending: shuffled, so that no link gets a burst."""
    probes = _probes(topology, number)
    Random(f"{seed}/{number}").shuffle(probes)  # noqa: S311 - repeatable, not secret
    return tuple(probes)


def _probes(topology: Topology, number: int) -> list[ProbePath]:
    return [*_nic_probes(topology, number), *_fabric_probes(topology, number)]


def _nic_probes(topology: Topology, number: int) -> Iterator[ProbePath]:
    below = topology.hosts_per_t0
    for host in topology.hosts:
        rack, place = topology.rack(host), topology.downlink(host)
        peer = topology.host_below(rack, _other(place, below, number))
        for plane in range(topology.planes):
            t0 = topology.t0(plane, rack)
            yield ProbePath(plane, (host, t0, host))
            if peer != host:
                yield ProbePath(plane, (host, t0, peer))


def _fabric_probes(topology: Topology, number: int) -> Iterator[ProbePath]:
    below, t0s, t1s = topology.hosts_per_t0, topology.t0_per_plane, topology.t1_per_plane
    for plane in range(topology.planes):
        for rack in range(t0s):
            t0 = topology.t0(plane, rack)
            t0b = topology.t0(plane, _other(rack, t0s, number))
            for index in range(t1s):
                t1 = topology.t1(plane, index)
                # adding the T1's index has each host probe other T1s in every round
                host = topology.host_below(rack, (number + index) % below)
                yield ProbePath(plane, (host, t0, t1, t0, host))
                home = topology.t1(plane, _other(index, t1s, number // max(t0s - 1, 1)))
                if t0b != t0 and home != t1:
                    across = topology.host_below(rack, (number + index + 1) % below)
                    yield ProbePath(plane, (across, t0, t1, t0b, home, t0, across))


def _other(index: int, count: int, turn: int) -> int:
    """An index below `count` other than `index`, all of them by turns; `index` if it is alone."""
    return (index + 1 + turn % (count - 1)) % count if count > 1 else index


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe that has been sent."""

    number: int
    path: ProbePath
    sent_ns: int


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """Whether a probe arrived in time, or is lost."""

    probe: Probe
    lost: bool


class Prober:
    """Sends the rounds of a fabric's probes evenly over time, and waits for each probe.

    Attributes:
        due_ns: when the next probe is due.
    """

    def __init__(
        self, topology: Topology, *, period_ns: int, timeout_ns: int, seed: int, start_ns: int
    ) -> None:
        """Begin with the first round.

        Args:
            topology: the fabric.
            period_ns: length of a round.
            timeout_ns: a probe that takes longer than this is lost.
            seed: orders the probes of a round.
            start_ns: when the first probe is due.
        """
        self._topology = topology
        self._per_round = probes_per_round(topology)
        self._interval_ns = max(period_ns // self._per_round, 1)
        self._timeout_ns = timeout_ns
        self._seed = seed
        self._round = 0
        self._waiting: deque[ProbePath] = deque()
        self._in_flight: dict[int, Probe] = {}
        self._arrived: list[Probe] = []
        self._number = 0
        self.due_ns = start_ns

    def take_due(self, now_ns: int) -> list[Probe]:
        """The probes to send now, in order; they count as sent at `now_ns`.

        A caller that is late sends what it missed at once, but at most a round.
        """
        probes = []
        missed = max(now_ns - self.due_ns, 0) // self._interval_ns
        self.due_ns += max(missed - self._per_round, 0) * self._interval_ns
        while self.due_ns <= now_ns:
            self.due_ns += self._interval_ns
            if not self._waiting:
                self._waiting.extend(probe_round(self._topology, self._round, self._seed))
                self._round += 1
            probe = Probe(self._number, self._waiting.popleft(), now_ns)
            self._number += 1
            self._in_flight[probe.number] = probe
            probes.append(probe)
        return probes

    def arrived(self, number: int) -> None:
        """Take in a probe that arrived undamaged; one that was reported lost stays lost.

        Call it for every arrival before `outcomes`, so that a late caller does not report probes
        as lost that were waiting in its sockets.
        """
        probe = self._in_flight.pop(number, None)
        if probe is not None:
            self._arrived.append(probe)

    def outcomes(self, now_ns: int) -> list[ProbeOutcome]:
        """The outcomes that have become known since the last call."""
        outcomes = [ProbeOutcome(probe, lost=False) for probe in self._arrived]
        self._arrived = []
        for number, probe in list(self._in_flight.items()):
            if now_ns - probe.sent_ns <= self._timeout_ns:
                break  # they are in the order of sending
            del self._in_flight[number]
            outcomes.append(ProbeOutcome(probe, lost=True))
        return outcomes
