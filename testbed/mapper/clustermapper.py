"""The Clustermapper without its sockets: probes out, arrivals in, findings out."""

from collections.abc import Callable
from dataclasses import dataclass

from testbed.mapper.diagnosis import Diagnosis, Finding
from testbed.mapper.inference import suspect_directions
from testbed.mapper.prober import Prober
from testbed.model.fabric.topology import Topology

TIMEOUT_RTTS = 2
"""A probe is lost if it takes longer than this many round trips. Over six links it takes less than
one; it travels in the control class, and so waits for at most one data packet at each port."""

Record = Callable[..., None]


@dataclass(frozen=True, slots=True)
class MapperPlan:
    """The settings of a Clustermapper.

    Attributes:
        topology: the fabric.
        period_ns: length of a round, in which every link is probed.
        seed: decides the order of the probes.
    """

    topology: Topology
    period_ns: int
    seed: int


class Clustermapper:
    """Probes a fabric from all its hosts and keeps a list of what is faulty.

    Attributes:
        prober: sends the probes; it takes in what has arrived.
    """

    def __init__(
        self, plan: MapperPlan, start_ns: int, record_probe: Record, record_finding: Record
    ) -> None:
        """Begin with the first round at `start_ns`.

        Args:
            plan: the settings.
            start_ns: when the first probe is due.
            record_probe: called with the columns of `records.PROBES`.
            record_finding: called with the columns of `records.FINDINGS`.
        """
        self.prober = Prober(
            plan.topology,
            period_ns=plan.period_ns,
            timeout_ns=TIMEOUT_RTTS * plan.topology.propagation_rtt_ns,
            seed=plan.seed,
            start_ns=start_ns,
        )
        self._plan = plan
        self._diagnosis = Diagnosis(plan.topology, plan.period_ns)
        self._judge_ns = start_ns
        self._record_probe = record_probe
        self._record_finding = record_finding

    def judges_at(self, now_ns: int) -> bool:
        """Whether a round is over, so that `judge` weighs and records its outcomes."""
        return now_ns >= self._judge_ns

    def judge(self, now_ns: int) -> list[Finding]:
        """Once a round, weigh the new outcomes; returns the accusations raised and lifted.

        Pass all arrivals to the prober first.
        """
        if not self.judges_at(now_ns):
            return []
        self._judge_ns = now_ns + self._plan.period_ns
        outcomes = self.prober.outcomes(now_ns)
        for outcome in outcomes:
            self._record_probe(outcome.probe.sent_ns, outcome.probe.path.name, outcome.lost)
        self._diagnosis.add(outcomes)
        findings = self._diagnosis.judge(now_ns)
        for finding in findings:
            culprit = finding.culprit
            self._record_finding(
                finding.time_ns,
                finding.raised,
                culprit.suspect.kind.value,
                culprit.suspect.name,
                round(culprit.loss * 1e6),
                round(culprit.gain * 1e3),
            )
        return findings

    @property
    def denied_directions(self) -> frozenset[str]:
        """The link directions that are accused, alone or as part of a link or switch."""
        suspects = (culprit.suspect for culprit in self._diagnosis.accused)
        return frozenset().union(*(suspect_directions(self._plan.topology, s) for s in suspects))
