"""The state of a run at the end of a stream so far: for a terminal and for metrics."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from testbed.live.stream.records import (
    RECORD,
    Detection,
    Ended,
    EvChange,
    EvMeasures,
    FaultChange,
    FlowMeasures,
    LinkMeasures,
    Opened,
    OperatorCommand,
    RunEnd,
    Snapshot,
    State,
    StreamRecord,
    SuspectChange,
    VerdictChange,
)

REMEMBERED_EVENTS = 50
"""Events that are remembered."""

_EVENT_TYPES = (
    EvChange,
    FaultChange,
    Detection,
    SuspectChange,
    OperatorCommand,
    VerdictChange,
    RunEnd,
)

_Part = TypeVar("_Part", bound=BaseModel)


@dataclass(slots=True)
class RunState:
    """The latest value of everything in the stream, as `page/timeline.js` keeps it.

    Attributes:
        snapshot: the first record; None before it.
        t: time of the last record, in seconds of the run.
        flows: the state of each flow.
        planes: the goodput of each plane in bits/s.
        evs: the state of each EV by `flow:ev`.
        ended: the flows whose program has ended.
        roles: of each EV whether it is in the active set, and its state.
        links: the state of each link direction.
        faults: the last change of each fault.
        detections: all so far.
        verdict: the last; None before the first.
        events: the last ones, in order.
        outcome: how the run ended; None before that.
    """

    snapshot: Snapshot | None = None
    t: float = 0.0
    flows: dict[int, FlowMeasures] = field(default_factory=dict)
    planes: dict[int, float] = field(default_factory=dict)
    evs: dict[str, EvMeasures] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    roles: dict[str, tuple[bool, str]] = field(default_factory=dict)
    links: dict[str, LinkMeasures] = field(default_factory=dict)
    faults: dict[int, FaultChange] = field(default_factory=dict)
    detections: list[Detection] = field(default_factory=list)
    verdict: VerdictChange | None = None
    events: deque[StreamRecord] = field(default_factory=lambda: deque(maxlen=REMEMBERED_EVENTS))
    outcome: str | None = None

    def take(self, record: StreamRecord) -> None:
        self.t = max(self.t, record.t)
        match record:
            case Snapshot() | Opened():
                self._open(record)
            case Ended():
                self.ended |= set(record.flows)
            case State():
                _merge(self.flows, record.flows)
                self.planes |= record.planes
                _merge(self.evs, record.evs)
                _merge(self.links, record.links)
            case EvChange():
                self.roles[f"{record.flow}:{record.ev}"] = record.active, record.new
            case FaultChange():
                self.faults[record.fault] = record
            case Detection():
                self.detections.append(record)
            case VerdictChange():
                self.verdict = record
            case RunEnd():
                self.outcome = record.outcome
        if isinstance(record, _EVENT_TYPES):
            self.events.append(record)

    def _open(self, record: Snapshot | Opened) -> None:
        """Take the flows and EVs that are new."""
        if isinstance(record, Snapshot):
            self.snapshot = record
        else:
            assert self.snapshot is not None  # noqa: S101 - the first record
            flows, evs = self.snapshot.flows + record.flows, self.snapshot.evs + record.evs
            self.snapshot = self.snapshot.model_copy(update={"flows": flows, "evs": evs})
        self.roles |= {f"{e.flow}:{e.ev}": (e.active, e.state) for e in record.evs}

    @property
    def in_force(self) -> list[FaultChange]:
        return [fault for fault in self.faults.values() if fault.impairment]


_Key = TypeVar("_Key", int, str)


def _merge(known: dict[_Key, _Part], changes: dict[_Key, _Part]) -> None:
    """Replace the values that have changed; what is None has not."""
    for key, change in changes.items():
        new = change.model_dump(exclude_none=True)
        known[key] = known[key].model_copy(update=new) if key in known else change


class StreamReader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_records(self) -> Iterator[StreamRecord]:
        """The records that have come since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield RECORD.validate_json(line)
