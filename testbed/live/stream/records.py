"""The records of the event stream: one JSON object a line, in order of `id`.

The first record is a `Snapshot`. `State` records follow, one for each step of the run's time; in
them a newer value replaces an older one, and a value that is missing has not changed. All other
records are events. Emulated, simulated and replayed runs have the same records.

What they add up to at the end of a stream so far is a `RunState`: for a terminal and for metrics.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from testbed.model.json_schema import records_schema

VERSION: Literal[5] = 5
"""Counts up whenever a reader of the stream has to change."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Record(_Part):
    """What every record has."""

    id: int = 0
    """Its number in the stream, from 0 without gaps."""
    t: float
    """Time in seconds of the run; below 0 before the start of the workload."""


# --- the snapshot -------------------------------------------------------------------------------


class NodePlace(_Part):
    """A host or a switch, and where a picture shows it."""

    name: str
    tier: Literal["host", "t0", "t1"]
    plane: int
    """Of a switch; 0 for a host, which is in all planes."""
    x: float
    """Its middle, in pitches of neighbouring switches from the left."""
    y: float
    """Its height: T1s above T0s above hosts."""


class LinkEnds(_Part):
    """A link."""

    name: str
    plane: int
    lower: str
    """The node nearer to the hosts."""
    upper: str
    rate_bps: float
    """Rate of each direction as emulated, in bits/s."""


class FlowEnds(_Part):
    """One direction of a pair of hosts."""

    flow: int
    name: str
    src: str
    dst: str
    transport: str
    job: str = ""
    """The name of its job, of several."""


class EvPath(_Part):
    """An EV of a flow, with its path and its state at the beginning."""

    flow: int
    ev: int
    path: str
    """Its plane and T1, such as `p2/t1_3`."""
    plane: int
    crosses: tuple[str, ...]
    """The link directions of its path, in order, such as `h0>p0_t0_0`."""
    addresses: tuple[str, ...]
    """The outer destination address of a packet on each of them."""
    usids: tuple[str, ...]
    """The uSIDs in the first address, in hexadecimal: of each node that these lead to."""
    state: str
    active: bool
    """Whether it is in the active set; otherwise it is a backup."""


class Snapshot(Record):
    """The first record: what the run consists of."""

    type: Literal["snapshot"] = "snapshot"
    version: Literal[5] = VERSION
    scenario: str
    description: str
    topology: str
    run: str
    """Name of the run's directory."""
    simulated: bool
    live: bool
    """Whether the stream was written while the run went on."""
    duration_s: float
    step_s: float
    """Time between two `State` records."""
    base_rtt_s: float
    dilation: float
    planes: int
    nics_per_node: int
    """Hosts of each node (machine): those of n0 first, then those of n1."""
    clustermapper: bool
    """Whether the run has a Clustermapper."""
    judged: bool = True
    """Whether the run has a verdict; the programs at a prompt have none."""
    slow_motion: bool = False
    """Whether the single packets of a flow are in the stream."""
    management: str = ""
    """The first host's address in the management network, if programs meet there."""
    nodes: tuple[NodePlace, ...]
    links: tuple[LinkEnds, ...]
    flows: tuple[FlowEnds, ...]
    evs: tuple[EvPath, ...]


class Opened(Record):
    """Flows and EVs that the snapshot did not have: a program at the prompt has begun to send."""

    type: Literal["opened"] = "opened"
    flows: tuple[FlowEnds, ...] = ()
    """Their numbers follow those of the flows before them."""
    evs: tuple[EvPath, ...] = ()


class Ended(Record):
    """Flows whose program at the prompt has ended."""

    type: Literal["ended"] = "ended"
    flows: tuple[int, ...]


# --- state --------------------------------------------------------------------------------------


class FlowMeasures(_Part):
    """What has changed of a flow. Rates are means over the last step."""

    goodput_bps: float | None = None
    cwnd_bytes: int | None = None
    inflight_bytes: int | None = None
    srtt_s: float | None = None
    lost: int | None = None
    """Packets declared lost so far, without those that arrived after all."""
    retransmitted: int | None = None
    """Packets sent again so far."""
    verified_bytes: int | None = None
    """Bytes so far that arrived in order and are equal to what was sent."""
    corrupted_bytes: int | None = None
    """Bytes so far of messages that differ from what was sent."""


class EvMeasures(_Part):
    """What has changed of an EV of a flow."""

    sent_bps: float | None = None
    """Payload that was sent on it, over the last step."""
    goodput_bps: float | None = None
    lost: int | None = None
    """Packets declared lost on it so far."""
    delay_s: float | None = None
    """Median time from a packet's sending to its placement, over the last step."""
    rtt_s: float | None = None
    """Median of the round trips that its sender measured, over the last step."""


class LinkMeasures(_Part):
    """What has changed of a link direction."""

    load: float | None = None
    """Share of its rate that was used since the last sample."""
    queue_bytes: int | None = None
    """Largest backlog of its port since the last record."""
    marked: int | None = None
    """Packets so far that got an ECN mark here."""
    trimmed: int | None = None
    """Packets so far that lost their payload here."""
    dropped: int | None = None
    """Packets so far that were dropped here."""
    probed: int | None = None
    """Probes of the Clustermapper so far whose paths cross it, by what became of them."""
    probes_lost: int | None = None
    """How many of them were lost, here or elsewhere on their paths."""


class State(Record):
    """What has changed in one step of the run's time; `t` is the step's end."""

    type: Literal["state"] = "state"
    flows: dict[int, FlowMeasures] = {}
    planes: dict[int, float] = {}
    """Goodput of each plane in bits/s."""
    evs: dict[str, EvMeasures] = {}
    """By `flow:ev`."""
    links: dict[str, LinkMeasures] = {}
    """By link direction."""


# --- packets ------------------------------------------------------------------------------------


Fate = Literal["arrived", "lost"]


class Packet(NamedTuple):
    """A packet: an array of these values."""

    seq: int
    """Its unwrapped PSN; 0 for a control packet."""
    ev: int
    sent_s: float
    """When it was handed to the socket, in seconds of the run."""
    until_s: float
    """When it was placed in memory, or arrived, or was declared lost."""
    fate: Fate
    """A control packet counts as lost if it has not arrived after four base RTTs."""
    again: bool
    """Whether it is a retransmission."""
    kind: str = "data"
    """Of a control packet: its name in `control.parquet`."""
    back: bool = False
    """Whether it goes from the flow's receiver to its sender."""


class PacketBatch(Record):
    """The packets of the flow in slow motion whose fate became known within a step."""

    type: Literal["packets"] = "packets"
    flow: int
    packets: tuple[Packet, ...]
    ways: dict[str, tuple[str, ...]] = {}
    """The link directions of paths that no batch had before: by `there:ev` and `back:ev`."""


# --- events -------------------------------------------------------------------------------------


class EvChange(Record):
    """An EV changes its state, or enters or leaves the active set."""

    type: Literal["ev"] = "ev"
    flow: int
    ev: int
    plane: int
    old: str
    new: str
    active: bool
    reason: str


class FaultChange(Record):
    """A fault has got one step further.

    `requested`, then `in effect`, then `changed` for each further step of its course, then
    `healed`; or `failed`.
    """

    type: Literal["fault"] = "fault"
    fault: int
    """Its number."""
    phase: Literal["requested", "in effect", "changed", "healed", "failed"]
    kind: str
    target: str
    places: tuple[str, ...]
    """The link directions, or hosts, that it strikes."""
    actuator: str
    after_s: float | None = None
    """Time since it was asked for, to the end of the interval in which this happened."""
    within_s: float | None = None
    """Length of that interval."""
    impairment: dict[str, Any] = {}
    """What is wrong with its places from now on."""
    proof: dict[str, Any] = {}
    """What was read back."""
    error: str | None = None


class Detection(Record):
    """The first EV of a flow through a fault left the active set, after the fault took effect."""

    type: Literal["detection"] = "detection"
    fault: int
    flow: int
    ev: int
    after_s: float
    """Time since the fault took effect."""


class SuspectChange(Record):
    """The Clustermapper accuses a link, a direction of it or a switch, or lifts an accusation."""

    type: Literal["finding"] = "finding"
    raised: bool
    kind: str
    suspect: str
    loss: float
    """The estimated share of packets that are lost there."""


class OperatorCommand(Record):
    """A command of the operator, or of the Clustermapper, has taken effect on an EV or a port."""

    type: Literal["operator"] = "operator"
    by: str
    kind: str
    host: str
    flow: int | None = None
    """None for a port."""
    plane: int
    ev: int | None = None
    result: str
    """The state of the EV or the port then; of a probe, whether it was answered."""
    rtt_s: float | None = None
    """The round trip of a probe that was answered."""


class VerdictChange(Record):
    """Whether the run can be trusted: so far, or finally."""

    type: Literal["verdict"] = "verdict"
    verdict: Literal["trusted", "degraded", "invalid"]
    reasons: tuple[str, ...] = ()
    final: bool = False


class RunEnd(Record):
    """The last record."""

    type: Literal["end"] = "end"
    outcome: str
    """How the run ended, in words."""


StreamRecord = (
    Snapshot
    | Opened
    | Ended
    | State
    | PacketBatch
    | EvChange
    | FaultChange
    | Detection
    | SuspectChange
    | OperatorCommand
    | VerdictChange
    | RunEnd
)
RECORD: TypeAdapter[StreamRecord] = TypeAdapter(
    Annotated[StreamRecord, Field(discriminator="type")]
)
"""Reads a line of a stream, and has its schema."""


def to_line(record: StreamRecord) -> str:
    """A record as a line of the stream; what is None is left out."""
    return record.model_dump_json(exclude_none=True) + "\n"


def stream_schema() -> dict[str, Any]:
    """The JSON Schema of a line of the stream."""
    return records_schema(RECORD, f"A record of the event stream, version {VERSION}")


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

_Value = TypeVar("_Value", bound=BaseModel)


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


def _merge(known: dict[_Key, _Value], changes: dict[_Key, _Value]) -> None:
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
