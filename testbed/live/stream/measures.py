"""From rows of tables to records of the stream: states of the run, and single packets of one flow.

A `State` has sums and means over a step of the run's time. A packet is shown as soon as it is known
what became of it.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from testbed.live.stream.records import (
    EvMeasures,
    Fate,
    FlowMeasures,
    LinkMeasures,
    Packet,
    PacketBatch,
    State,
)
from testbed.model.errors import InputError
from testbed.model.fabric.addressing import directions_of_path, path_of_ev
from testbed.model.fabric.ev_set import EV_BITS
from testbed.model.fabric.names import directions_along
from testbed.model.fabric.topology import Topology
from testbed.model.flows import Flow, flows_recorded
from testbed.model.run_files.content import FlowRecord
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S
from testbed.results.records import (
    ARRIVALS,
    COMPLETIONS,
    CONTROL,
    CONTROL_DILATION,
    LINKS,
    LOSSES,
    PROBES,
    QP,
    QUEUES,
    ROUND_TRIPS,
    TRANSMISSIONS,
    Table,
)

Rows = Mapping[str, np.ndarray]
"""Rows of one table: its columns by name; `t` in seconds of the run."""

Tables = Mapping[Table, Rows]
"""Rows of several tables; a table without rows may be missing."""

DELAY_SAMPLE = 8
"""The delay is measured of one packet in so many."""

_SCATTER, _SCATTER_SHIFT = 2_654_435_761, 20
"""Knuth's multiplicative hash: The Art of Computer Programming 3, 6.4."""

_MOST_UNDER_WAY = 50_000
"""Packets whose sending is remembered until they arrive; of the lost ones none does."""

_RATES = "sent_bps", "goodput_bps"
_DIGITS = 4
"""Significant digits of rates and times: enough for a page, and half the bytes."""


class Measures:
    """Adds up rows, and tells at the end of each step what has changed since the one before."""

    def __init__(self, topology: Topology) -> None:
        self._rates_bps = {
            direction: topology.rate_bps(link)
            for link in topology.links.values()
            for direction in link.directions
        }
        self._known: dict[tuple[str, object], dict[str, Any]] = {}
        self._running: list[tuple[str, object, str]] = []
        self._totals: defaultdict[tuple[str, object, str], int] = defaultdict(int)
        self._sent_s: dict[tuple[int, int, int], float] = {}
        self._counted: dict[str, tuple[float, int]] = {}

    def state(self, tables: Tables, begin_s: float, end_s: float) -> State:
        """The changes by the rows between two times."""
        values: dict[tuple[str, object], dict[str, Any]] = defaultdict(dict)
        for kind, key, name in self._running:  # without rows a rate is 0
            values[kind, key][name] = 0.0
        self._add_packets(tables, end_s - begin_s, values)
        self._add_judged(tables, values)
        self._add_queue_pairs(tables, values)
        self._add_links(tables, values)
        self._add_probes(tables, values)
        self._running = [
            (*place, name) for place, last in values.items() for name in _RATES if last.get(name)
        ]
        changed: dict[str, dict[Any, dict[str, Any]]] = defaultdict(dict)
        for (kind, key), latest in values.items():
            before = self._known.setdefault((kind, key), {})
            new = {name: value for name, value in latest.items() if before.get(name) != value}
            before.update(new)
            if new:
                changed[kind][key] = new
        return State(
            t=end_s,
            flows={key: FlowMeasures(**new) for key, new in changed["flow"].items()},
            planes={key: new["goodput_bps"] for key, new in changed["plane"].items()},
            evs={key: EvMeasures(**new) for key, new in changed["ev"].items()},
            links={key: LinkMeasures(**new) for key, new in changed["link"].items()},
        )

    def _add_packets(self, tables: Tables, step_s: float, values: Any) -> None:
        if sent := tables.get(TRANSMISSIONS):
            for ev, total in _sums(_ev_keys(sent), sent["bytes"]):
                values["ev", _ev_name(ev)]["sent_bps"] = _rounded(8 * total / step_s)
            for flow, total in _sums_by_number(sent["flow"], sent["retransmitted"]):
                values["flow", flow]["retransmitted"] = self._total("flow", flow, "again", total)
            self._remember_sending(sent)
        if arrived := tables.get(ARRIVALS):
            for kind, keys in (("flow", arrived["flow"]), ("plane", arrived["plane"])):
                for key, total in _sums_by_number(keys, arrived["bytes"]):
                    values[kind, key]["goodput_bps"] = _rounded(8 * total / step_s)
            for ev, total in _sums(_ev_keys(arrived), arrived["bytes"]):
                values["ev", _ev_name(ev)]["goodput_bps"] = _rounded(8 * total / step_s)
            for name, delay_s in self._delays(arrived):
                values["ev", name]["delay_s"] = _rounded(delay_s)

    def _add_judged(self, tables: Tables, values: Any) -> None:
        """What senders have learnt of their packets: round trips and losses."""
        if measured := tables.get(ROUND_TRIPS):
            for ev, rtt_ns in _medians(_ev_keys(measured), measured["rtt_ns"]):
                values["ev", _ev_name(ev)]["rtt_s"] = _rounded(rtt_ns / NS_PER_S)
        for flow, ev, spurious in _rows(tables, LOSSES, "flow", "ev", "spurious"):
            change = -1 if spurious else 1
            values["flow", flow]["lost"] = self._total("flow", flow, "lost", change)
            name = f"{flow}:{ev}"
            values["ev", name]["lost"] = self._total("ev", name, "lost", change)

    def _total(self, kind: str, key: object, name: str, change: float) -> int:
        self._totals[kind, key, name] += int(change)
        return max(self._totals[kind, key, name], 0)

    def _remember_sending(self, sent: Rows) -> None:
        for row in _sampled(sent):
            self._sent_s[row[1:]] = row[0]
        surplus = len(self._sent_s) - _MOST_UNDER_WAY
        for key in [*islice(self._sent_s, max(surplus, 0))]:
            del self._sent_s[key]

    def _delays(self, arrived: Rows) -> Iterator[tuple[str, float]]:
        delays: dict[str, list[float]] = defaultdict(list)
        for t, flow, ev, seq in _sampled(arrived):
            sent_s = self._sent_s.pop((flow, ev, seq), None)
            if sent_s is not None:
                delays[f"{flow}:{ev}"].append(t - sent_s)
        return ((ev, median(of_ev)) for ev, of_ev in delays.items())

    def _add_queue_pairs(self, tables: Tables, values: Any) -> None:
        columns = "flow", "cwnd_bytes", "inflight_bytes", "srtt_ns"
        for flow, cwnd, inflight, srtt_ns in _rows(tables, QP, *columns):
            values["flow", flow] |= {
                "cwnd_bytes": cwnd,
                "inflight_bytes": inflight,
                "srtt_s": _rounded(srtt_ns / NS_PER_S),
            }
        for flow, size, verified in _rows(tables, COMPLETIONS, "flow", "bytes", "verified"):
            name = "verified_bytes" if verified else "corrupted_bytes"
            values["flow", flow][name] = self._total("flow", flow, name, size)

    def _add_links(self, tables: Tables, values: Any) -> None:
        columns = "t", "direction", "bytes", "dropped", "marked", "trimmed", "backlog_bytes"
        for t, direction, count, dropped, marked, trimmed, backlog in _rows(
            tables, LINKS, *columns
        ):
            counters = {"dropped": dropped, "marked": marked, "trimmed": trimmed}
            latest = values["link", direction]
            latest |= {name: value for name, value in counters.items() if value}
            latest["queue_bytes"] = backlog
            before = self._counted.get(direction)
            self._counted[direction] = t, count
            if before is not None and t > before[0]:
                rate_bps = 8 * (count - before[1]) / (t - before[0])
                latest["load"] = round(rate_bps / self._rates_bps[direction], 3)
        for direction, backlog in _largest(tables, QUEUES, "direction", "backlog_bytes"):
            latest = values["link", direction]
            latest["queue_bytes"] = max(backlog, latest.get("queue_bytes", 0))

    def _add_probes(self, tables: Tables, values: Any) -> None:
        """What the Clustermapper has measured of each link direction."""
        for path, lost in _rows(tables, PROBES, "path", "lost"):
            for direction in directions_along(path):
                latest = values["link", direction]
                latest["probed"] = self._total("link", direction, "probed", 1)
                latest["probes_lost"] = self._total("link", direction, "probes_lost", lost)


def _rows(tables: Tables, table: Table, *columns: str) -> Iterable[tuple[Any, ...]]:
    rows = tables.get(table)
    return () if rows is None else zip(*(rows[name].tolist() for name in columns), strict=True)


def _largest(tables: Tables, table: Table, key: str, value: str) -> Iterable[tuple[Any, Any]]:
    rows = tables.get(table)
    if rows is None:
        return ()
    order = np.argsort(rows[value], kind="stable")
    keys, values = (rows[name][order].tolist() for name in (key, value))
    return dict(zip(keys, values, strict=True)).items()  # of each key the last remains


def _ev_keys(rows: Rows) -> np.ndarray:
    keys: np.ndarray = rows["flow"].astype(np.int64) << EV_BITS | rows["ev"]
    return keys


def _ev_name(key: int) -> str:
    return f"{key >> EV_BITS}:{key & (1 << EV_BITS) - 1}"


def _sums(keys: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, float]]:
    different, numbers = np.unique(keys, return_inverse=True)
    sums = np.bincount(numbers, weights=values)
    return zip(different.tolist(), sums.tolist(), strict=True)


def _sums_by_number(numbers: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, float]]:
    """The same where the keys are small numbers from 0, without sorting them."""
    sums = np.bincount(numbers, weights=values)
    return ((key, float(sums[key])) for key in np.flatnonzero(np.bincount(numbers)).tolist())


def _medians(keys: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, float]]:
    order = np.lexsort((values, keys))
    ordered = values[order]
    different, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
    lower, upper = ordered[first + (counts - 1) // 2], ordered[first + counts // 2]
    return zip(different.tolist(), ((lower + upper) / 2).tolist(), strict=True)


def _sampled(rows: Rows) -> Iterator[tuple[float, int, int, int]]:
    """Time, flow, EV and sequence number of the packets whose delay is measured."""
    # Scattered: a rotation and every eighth packet would meet on some EVs only.
    chosen = rows["seq"] * _SCATTER >> _SCATTER_SHIFT & (DELAY_SAMPLE - 1) == 0
    columns = (rows[name][chosen].tolist() for name in ("t", "flow", "ev", "seq"))
    return zip(*columns, strict=True)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


_PACKET_DIGITS = 6
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
            times = round(sent, _PACKET_DIGITS), round(t, _PACKET_DIGITS)
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
    times = round(packet.sent_s, _PACKET_DIGITS), round(until_s, _PACKET_DIGITS)
    return Packet(0, packet.ev, *times, fate, again=False, kind=packet.kind, back=packet.back)
