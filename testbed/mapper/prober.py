"""When which probe is sent, and whether it came back."""

from collections import deque
from dataclasses import dataclass

from testbed.mapper.paths import ProbePath, probe_round, probes_per_round
from testbed.model.fabric.topology import Topology


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe that has been sent.

    Attributes:
        number: its number among all probes of a run.
        path: its path.
        sent_ns: when it was sent.
    """

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
