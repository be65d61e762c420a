"""Records the events of a queue pair's core, for the flows that begin and end at it."""

from collections.abc import Iterable

from testbed.host.recording import Tables
from testbed.model.fabric.addressing import path_of_ev
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc import EvChanged, Event, Lost, Placed, RoundTrip, Spurious


class QpRecords:
    """The records of one queue pair.

    Attributes:
        sends: the number of the flow that it sends; None if it only receives.
        receives: the number of the flow that it receives; None if it only sends.
    """

    def __init__(
        self,
        tables: Tables,
        topology: Topology,
        ends: tuple[Node, Node],
        sends: int | None,
        receives: int | None,
    ) -> None:
        """Record in the tables of a host; `ends` are this host and its peer."""
        self.sends = sends
        self.receives = receives
        self._tables = tables
        self._topology = topology
        self._host, self._peer = ends
        self._planes: dict[int, int] = {}

    def record_packets(self, events: Iterable[Event]) -> list[Event]:
        """Record arrivals and round trips, many at once; returns the events that are rarer."""
        sends, receives, planes = self.sends, self.receives, self._planes
        arrived: list[tuple[int, ...]] = []
        round_trips: list[tuple[int, ...]] = []
        rarer: list[Event] = []
        for event in events:
            if isinstance(event, Placed):
                if receives is not None:
                    seq, ev, size, retransmitted, time_ns = event
                    plane = planes.get(ev)
                    if plane is None:
                        plane = self._plane(ev)
                    arrived.append((time_ns, receives, plane, ev, seq, size, retransmitted))
            elif isinstance(event, RoundTrip):
                if sends is not None:
                    ev, plane, rtt_ns, time_ns = event
                    round_trips.append((time_ns, sends, plane, ev, rtt_ns))
            else:
                rarer.append(event)
        if arrived:
            self._tables.arrivals(arrived)
        if round_trips:
            self._tables.round_trips(round_trips)
        return rarer

    def _plane(self, ev: int) -> int:
        plane = path_of_ev(self._topology, self._peer, self._host, ev).plane
        self._planes[ev] = plane
        return plane

    def record_rare(self, event: Event) -> None:
        """Record a loss, or the change of an EV, of the flow that this end sends.

        A queue pair that is used one way has events of the other direction too: they are dropped.
        """
        flow = self.sends
        if flow is None:
            return
        if isinstance(event, Lost | Spurious):
            is_spurious = isinstance(event, Spurious)
            t, plane, ev, seq = event.time_ns, event.plane, event.ev, event.seq
            self._tables.losses(t, flow, plane, ev, seq, event.sent_ns, is_spurious)
        elif isinstance(event, EvChanged):
            t, plane, old, new = event.time_ns, event.plane, event.old, event.new
            self._tables.ev_events(t, flow, plane, event.ev, old, new, event.active, event.reason)
