"""The Clustermapper without its sockets: probes out, arrivals in, findings out."""

from collections.abc import Callable
from dataclasses import dataclass

from testbed.mapper.diagnosis import Diagnosis, Finding
from testbed.mapper.prober import Outcome, Probe, Prober
from testbed.mapper.suspects import directions_of
from testbed.model.fabric.topology import Topology

TIMEOUT_RTTS = 2
"""A probe that took longer than this many round trips is lost. Over six links it is under way for
less than one, and as it travels in the control class it waits behind one data packet a port."""

Record = Callable[..., None]


@dataclass(frozen=True, slots=True)
class MapperPlan:
    """What a Clustermapper is told.

    Attributes:
        topology: the fabric.
        period_ns: length of a round, in which every link is probed.
        seed: orders the probes.
    """

    topology: Topology
    period_ns: int
    seed: int


class Clustermapper:
    """Probes a fabric from all its hosts and keeps a list of what is ill."""

    def __init__(
        self, plan: MapperPlan, start_ns: int, record_probe: Record, record_finding: Record
    ) -> None:
        """Begin with the first round at `start_ns`.

        Args:
            plan: what to do.
            start_ns: when the first probe is due.
            record_probe: is given the columns of `records.PROBES`.
            record_finding: is given the columns of `records.FINDINGS`.
        """
        topology = plan.topology
        self._topology = topology
        self._period_ns = plan.period_ns
        self._prober = Prober(
            topology,
            period_ns=plan.period_ns,
            timeout_ns=TIMEOUT_RTTS * topology.propagation_rtt_ns,
            seed=plan.seed,
            start_ns=start_ns,
        )
        self._diagnosis = Diagnosis(topology, plan.period_ns)
        self._judge_ns = start_ns
        self._record_probe = record_probe
        self._record_finding = record_finding

    @property
    def due_ns(self) -> int:
        """When the next probe is due."""
        return self._prober.due_ns

    def due(self, now_ns: int) -> list[Probe]:
        """The probes to send now."""
        return self._prober.due(now_ns)

    def arrived(self, number: int) -> None:
        """A probe has come out undamaged."""
        self._prober.arrived(number)

    def judge(self, now_ns: int) -> list[Finding]:
        """Weigh what has become clear, once a round; returns what that raises and lifts.

        Take in all that has arrived first.
        """
        if now_ns < self._judge_ns:
            return []
        self._judge_ns = now_ns + self._period_ns
        outcomes = self._prober.outcomes(now_ns)
        for outcome in outcomes:
            self._put(outcome)
        self._diagnosis.add(outcomes)
        findings = self._diagnosis.judge(now_ns)
        for finding in findings:
            self._tell(finding)
        return findings

    @property
    def denied(self) -> frozenset[str]:
        """The link directions that are accused, alone or as part of a link or switch."""
        suspects = (culprit.suspect for culprit in self._diagnosis.standing)
        return frozenset().union(*(directions_of(self._topology, one) for one in suspects))

    def _put(self, outcome: Outcome) -> None:
        self._record_probe(outcome.probe.sent_ns, outcome.probe.path.name, outcome.lost)

    def _tell(self, finding: Finding) -> None:
        culprit = finding.culprit
        self._record_finding(
            finding.time_ns,
            finding.raised,
            culprit.suspect.kind.value,
            culprit.suspect.name,
            round(culprit.loss * 1e6),
            round(culprit.gain * 1e3),
        )
