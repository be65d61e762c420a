"""Single packets of one flow, as soon as it is known what became of each."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from testbed.live.stream.measures import Tables
from testbed.live.stream.records import Fate, Packet, PacketBatch
from testbed.model.errors import InputError
from testbed.model.fabric.addressing import directions_of_path, path_of_ev
from testbed.model.fabric.topology import Topology
from testbed.model.flows import Flow, flows_recorded
from testbed.model.run_files.content import FlowRecord
from testbed.model.scenario import Scenario
from testbed.results.records import (
    ARRIVALS,
    CONTROL,
    CONTROL_DILATION,
    LOSSES,
    TRANSMISSIONS,
    Table,
)

_DIGITS = 6
"""Of times, in seconds."""

_MISSING_RTTS = 4
"""A control packet that has not arrived after so many base RTTs is shown as missing."""

_Key = tuple[int, int, bool]
"""Sequence number, EV, and whether it is a retransmission."""


def _flow_named(flows: Sequence[Flow], name: str) -> int:
    """The number of the flow with this name: `h0,h4`.

    Raises:
        InputError: the run has no such flow.
    """
    for flow in flows:
        if f"{flow.src.name},{flow.dst.name}" == name:
            return flow.number
    example = f", such as {flows[0].src.name},{flows[0].dst.name}" if flows else ": it has none"
    expected = f"a flow of the run{example}"
    raise InputError.of("--packets", name, expected)


def flow_in_slow_motion(
    scenario: Scenario,
    name: str | None,
    recorded: Iterable[FlowRecord] = (),
    *,
    live: bool = False,
) -> int | None:
    """The flow whose packets are shown: the one that is named, or the first if time is slow enough.

    Raises:
        InputError: the run has no such flow; or it is live, and too fast for a person to follow.
    """
    slow = scenario.topology.dilation >= CONTROL_DILATION
    flows = flows_recorded(scenario, recorded)
    if name is None:
        return next((flow.number for flow in flows), None) if slow else None
    if live and not slow:
        found = f"{name} at dilation {scenario.topology.dilation:g}"
        expected = f"a dilation of {CONTROL_DILATION} or more: a person follows the packets"
        remedy = f"--set topology.dilation={CONTROL_DILATION}"
        raise InputError.of("--packets", found, expected, remedy)
    return _flow_named(flows, name)


class _Control(NamedTuple):
    """A control packet that was sent."""

    sent_s: float
    ev: int
    kind: str
    back: bool


class PacketFollower:
    """Follows the packets of one flow through the rows of tables, step by step."""

    def __init__(self, topology: Topology, flow: Flow, base_rtt_s: float) -> None:
        """Begin with nothing under way."""
        self.flow = flow.number
        self._topology = topology
        self._ends = flow
        self._missing_s = _MISSING_RTTS * base_rtt_s
        self._data: dict[_Key, float] = {}
        self._by_time: dict[tuple[int, float], _Key] = {}
        self._control: dict[int, deque[_Control]] = {}
        self._ways: set[str] = set()

    def batch(self, tables: Tables, end_s: float) -> PacketBatch:
        """The packets whose fate the rows of a step tell."""
        packets = [*self._data_packets(tables), *self._control_packets(tables, end_s)]
        packets.sort(key=lambda packet: packet.sent_s)
        return PacketBatch(
            t=end_s, flow=self.flow, packets=tuple(packets), ways=self._new_ways(packets)
        )

    def _rows(self, tables: Tables, table: Table, *columns: str) -> Iterator[tuple[Any, ...]]:
        rows = tables.get(table)
        if rows is not None:
            chosen = rows["flow"] == self.flow
            yield from zip(*(rows[name][chosen].tolist() for name in columns), strict=True)

    def _data_packets(self, tables: Tables) -> Iterator[Packet]:
        for t, ev, seq, again in self._rows(
            tables, TRANSMISSIONS, "t", "ev", "seq", "retransmitted"
        ):
            if t >= 0:
                key = seq, ev, again
                self._data[key] = t
                self._by_time[seq, round(t, 9)] = key
        fates: list[tuple[float, Fate, _Key]] = [
            (t, "arrived", (seq, ev, again))
            for t, ev, seq, again in self._rows(tables, ARRIVALS, "t", "ev", "seq", "retransmitted")
        ]
        for t, seq, sent_s in self._rows(tables, LOSSES, "t", "seq", "sent_t"):
            lost = self._by_time.get((seq, round(sent_s, 9)))
            if lost is not None:
                fates.append((t, "lost", lost))
        for t, fate, key in sorted(fates):
            sent = self._data.pop(key, None)
            if sent is None:
                continue
            seq, ev, again = key
            self._by_time.pop((seq, round(sent, 9)), None)
            times = round(sent, _DIGITS), round(t, _DIGITS)
            yield Packet(seq, ev, *times, fate, again)

    def _control_packets(self, tables: Tables, end_s: float) -> Iterator[Packet]:
        rows = tables.get(CONTROL)
        if rows is not None:
            names = ("t", "flow", "ev", "kind", "icrc", "sent", "back")
            for t, flow, ev, kind, icrc, sent, back in zip(
                *(rows[name].tolist() for name in names), strict=True
            ):
                if sent and flow == self.flow and t >= 0:
                    self._control.setdefault(icrc, deque()).append(_Control(t, ev, kind, back))
                elif not sent and self._control.get(icrc):
                    yield _shown(self._control[icrc].popleft(), t, "arrived")
        for icrc, waiting in [*self._control.items()]:
            while waiting and waiting[0].sent_s + self._missing_s < end_s:
                packet = waiting.popleft()
                yield _shown(packet, packet.sent_s + self._missing_s, "lost")
            if not waiting:
                del self._control[icrc]

    def _new_ways(self, packets: Sequence[Packet]) -> dict[str, tuple[str, ...]]:
        """The paths of EVs that no batch had before."""
        new = {}
        for packet in packets:
            name = f"{'back' if packet.back else 'there'}:{packet.ev}"
            if name in self._ways:
                continue
            self._ways.add(name)
            src, dst = self._ends.src, self._ends.dst
            if packet.back:
                src, dst = dst, src
            path = path_of_ev(self._topology, src, dst, packet.ev)
            new[name] = directions_of_path(self._topology, src, dst, path)
        return new


def _shown(packet: _Control, until_s: float, fate: Fate) -> Packet:
    times = round(packet.sent_s, _DIGITS), round(until_s, _DIGITS)
    return Packet(0, packet.ev, *times, fate, again=False, kind=packet.kind, back=packet.back)
