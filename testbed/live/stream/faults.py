"""The events of faults: how far each has got, and which flows have detected it."""

from collections.abc import Iterable, Iterator, Mapping

from testbed.live.stream.records import Detection, EvChange, EvPath, FaultChange, FlowEnds
from testbed.model.faults.record import FaultRecord
from testbed.model.units import NS_PER_S


class FaultEvents:
    """Compares the records of faults with what the stream has of them already."""

    def __init__(self, t0_ns: int) -> None:
        """Begin without faults; `t0_ns` is the start of the run on the clock of the records."""
        self._t0_ns = t0_ns
        self._hosts: dict[int, set[str]] = {}
        self._passes: dict[tuple[int, int], set[str]] = {}
        self._active: dict[tuple[int, int], bool] = {}
        self._records: dict[int, FaultRecord] = {}
        self._shown: dict[int, int] = {}
        self._detected: set[tuple[int, int]] = set()

    def add(self, flows: Iterable[FlowEnds], evs: Iterable[EvPath]) -> None:
        """Tell of flows, and of EVs of these or earlier ones, with their states."""
        self._hosts |= {flow.flow: {flow.src, flow.dst} for flow in flows}
        for ev in evs:
            key = ev.flow, ev.ev
            self._passes[key] = {*ev.crosses, *self._hosts[ev.flow]}
            self._active[key] = ev.active

    def changes(self, records: Iterable[FaultRecord], until_s: float) -> Iterator[FaultChange]:
        """What has happened to these faults by a time and has not been shown yet."""
        for record in records:
            self._records[record.index] = record
            shown = self._shown.get(record.index, 0)
            for change in [*self._course(record)][shown:]:
                if change.t > until_s:
                    break
                self._shown[record.index] = self._shown.get(record.index, 0) + 1
                yield change

    def detections(self, change: EvChange) -> Iterator[Detection]:
        """The faults that a flow has detected by this change of an EV."""
        key = change.flow, change.ev
        left = self._active.get(key, False) and not change.active
        self._active[key] = change.active
        if not left:
            return
        for record in self._records.values():
            effective_s, healed_s = self._s(record.effective_ns), self._s(record.healed_ns)
            if effective_s is None or change.t < effective_s:
                continue
            if healed_s is not None and change.t > healed_s:
                continue
            if (record.index, change.flow) in self._detected:
                continue
            if self._passes.get(key, set()).isdisjoint(record.places):
                continue
            self._detected.add((record.index, change.flow))
            yield Detection(
                t=change.t,
                fault=record.index,
                flow=change.flow,
                ev=change.ev,
                after_s=change.t - effective_s,
            )

    def _s(self, time_ns: int | None) -> float | None:
        return None if time_ns is None else (time_ns - self._t0_ns) / NS_PER_S

    def _course(self, record: FaultRecord) -> Iterator[FaultChange]:
        """All that is known of a fault, in order of time."""
        yield self._change(record, "requested", record.asked_ns)
        for number, step in enumerate(record.steps):
            healed = record.healed_ns is not None and step is record.steps[-1]
            first_phase = "in effect" if number == 0 else "changed"
            yield self._change(
                record,
                "healed" if healed else first_phase,
                step.by_ns,
                after_s=(step.by_ns - step.asked_ns) / NS_PER_S,
                within_s=(step.by_ns - step.after_ns) / NS_PER_S,
                impairment=dict(step.state),
                proof=_proof(record.proof, healed=healed, first=number == 0),
            )
        if record.error is not None:
            last_ns = record.steps[-1].by_ns if record.steps else record.asked_ns
            yield self._change(record, "failed", last_ns, error=record.error)

    def _change(self, record: FaultRecord, phase: str, time_ns: int, **more: object) -> FaultChange:
        values = {
            "fault": record.index,
            "phase": phase,
            "kind": record.kind,
            "target": record.target,
            "places": record.places,
            "actuator": record.actuator,
            **more,
        }
        return FaultChange.model_validate({"t": self._s(time_ns), **values})


def _proof(proof: Mapping[str, object], *, healed: bool, first: bool) -> dict[str, object]:
    """The part of a record's proof that belongs to a step.

    The emulation's proof has a part for the injection and one for the healing. The simulator's is
    the number of packets that were hit until the end, by link direction.
    """
    parts = {"injected", "healed", "until_end"}
    if parts.isdisjoint(proof):
        return {"packets_hit": dict(proof)} if healed and proof else {}
    key = "injected" if first else "healed" if healed else ""
    found = proof.get(key, {})
    return dict(found) if isinstance(found, Mapping) else {}
