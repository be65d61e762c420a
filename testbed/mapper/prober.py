"""Which probe goes out when, and what became of it: sans-IO."""

from collections import deque
from dataclasses import dataclass

from testbed.mapper.paths import ProbePath, probe_round, probes_per_round
from testbed.model.fabric.topology import Topology


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe on its way.

    Attributes:
        number: counts all probes of a run.
        path: its way.
        sent_ns: when it left.
    """

    number: int
    path: ProbePath
    sent_ns: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a probe: back in time, or lost."""

    probe: Probe
    lost: bool


class Prober:
    """Sends the rounds of a fabric's probes evenly over time and waits for each."""

    def __init__(
        self, topology: Topology, *, period_ns: int, timeout_ns: int, seed: int, start_ns: int
    ) -> None:
        """Begin with the first round.

        Args:
            topology: the fabric.
            period_ns: length of a round.
            timeout_ns: a probe that took longer than this is lost.
            seed: orders the probes of a round.
            start_ns: when the first probe is due.
        """
        self._topology = topology
        self._interval_ns = max(period_ns // probes_per_round(topology), 1)
        self._timeout_ns = timeout_ns
        self._seed = seed
        self._round = 0
        self._waiting: deque[ProbePath] = deque()
        self._under_way: dict[int, Probe] = {}
        self._arrived: list[Probe] = []
        self._number = 0
        self.due_ns = start_ns

    def due(self, now_ns: int) -> list[Probe]:
        """The probes to send now, in order; they count as sent at `now_ns`.

        A caller that comes late sends what it missed at once, but no more than a round.
        """
        found = []
        late = max(now_ns - self.due_ns, 0) // self._interval_ns
        self.due_ns += max(late - probes_per_round(self._topology), 0) * self._interval_ns
        while self.due_ns <= now_ns:
            self.due_ns += self._interval_ns
            if not self._waiting:
                self._waiting.extend(probe_round(self._topology, self._round, self._seed))
                self._round += 1
            probe = Probe(self._number, self._waiting.popleft(), now_ns)
            self._number += 1
            self._under_way[probe.number] = probe
            found.append(probe)
        return found

    def arrived(self, number: int) -> None:
        """A probe has come out undamaged; one that has been given up stays lost.

        Take in all that has arrived before asking for `outcomes`: a caller that comes late then
        takes nothing for lost that only waited for it.
        """
        probe = self._under_way.pop(number, None)
        if probe is not None:
            self._arrived.append(probe)

    def outcomes(self, now_ns: int) -> list[Outcome]:
        """What has become clear since the last call."""
        found = [Outcome(probe, lost=False) for probe in self._arrived]
        self._arrived = []
        for number, probe in list(self._under_way.items()):
            if now_ns - probe.sent_ns <= self._timeout_ns:
                break  # they are in the order of sending
            del self._under_way[number]
            found.append(Outcome(probe, lost=True))
        return found
