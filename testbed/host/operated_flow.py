"""A flow as an operator sees it: its EVs at present, who denies them, and which remain in use."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from testbed.host.plan import QpPlan
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.operator.answers import EvRow
from testbed.model.operator.commands import evs_named
from testbed.mrc import EvState, QueuePair


@dataclass(slots=True)
class OperatedFlow:
    """A flow of a host.

    Attributes:
        number: its number; -1 for a queue pair that only receives.
        qp: its queue pair.
        plan: the plan that the queue pair was made from.
        evs: its EVs, with those that replaced others.
        denials: who denies which EV.
    """

    number: int
    qp: QueuePair
    plan: QpPlan
    evs: list[EvChoice]
    denials: dict[int, set[str]]

    def remaining(
        self,
        *,
        denied: Collection[int] = (),
        freed: Collection[int] = (),
        disabled: int | None = None,
    ) -> list[int]:
        """The EVs that would remain in use after a change.

        Args:
            denied: these EVs are denied.
            freed: nobody denies these any more.
            disabled: this port is disabled.
        """
        down = self.qp.down_planes() | {disabled}
        return [
            ev.ev
            for ev in self.qp.evs()
            if (ev.state is not EvState.DENIED or ev.ev in freed)
            and ev.plane not in down
            and ev.ev not in denied
        ]

    def values(self, names: Sequence[str]) -> list[int]:
        """The EVs with these names (paths, planes, numbers), each once."""
        named = (value for name in names for value in evs_named(self.evs, name))
        return list(dict.fromkeys(named))

    def plane(self, value: int) -> int:
        """The plane of an EV."""
        return next(ev.path.plane for ev in self.evs if ev.value == value)

    def listing(self, now_ns: int, rtt_ns: int) -> list[EvRow]:
        """The rows of all EVs; ages are in round trips of `rtt_ns`."""
        paths = {ev.value: ev.path.name for ev in self.evs}
        return [
            EvRow(
                ev=ev.ev,
                path=paths[ev.ev],
                port=ev.plane,
                state=ev.state.value,
                active=ev.active,
                losses=ev.losses,
                condemnations=ev.condemnations,
                denied_by=sorted(self.denials.get(ev.ev, ())),
                changed_rtts_ago=(
                    round((now_ns - ev.changed_ns) / rtt_ns, 2) if ev.changed_ns else None
                ),
                reason=ev.reason,
            )
            for ev in self.qp.evs()
        ]
