"""The queue pair: requester and responder behind one sans-IO interface.

Nothing here reads a clock or touches a socket. The I/O layer calls `receive` for every packet that
has arrived, then `transmit`, sends the datagrams that it returns, and calls it again no later than
`next_deadline`. With many queue pairs it may pass over those that are not `touched` and whose
`deadlines` have not come. All times are ns of one monotonic clock.
"""

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Final

from testbed.mrc.config import BusyState, QpConfig
from testbed.mrc.congestion.control import FixedWindow, RttEstimator, Window
from testbed.mrc.constants import MAX_MPR, MPR_UNIT, NEVER
from testbed.mrc.endpoint import Endpoint
from testbed.mrc.entropy import EvEntry, EvListing, EvState
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.ev.probing import ProbeBatch
from testbed.mrc.ev.reverse import ReversePaths
from testbed.mrc.ev.selection import SelectorFactory
from testbed.mrc.events import Counters, Event, QpSample
from testbed.mrc.message import (
    Completion,
    CompletionStatus,
    MemoryTable,
    Payload,
    ReceiveCompletion,
    check_write,
)
from testbed.mrc.requester import Requester
from testbed.mrc.responder import Responder
from testbed.mrc.wire.codec import seal
from testbed.mrc.wire.control import Packet, ReliabilityProbe, RequestPacket, ResponsePacket
from testbed.mrc.wire.datagram import Arrival, Datagram

# --------------------------------------------------------------------------------------------------
# States of a queue pair: InfiniBand's, as the verbs API knows them (IBTA; OCP MRC API).
#
# RESET: new; nothing is sent, arrivals are dropped. INIT: the same, configured. RTR: WRITEs of the
# peer are accepted and answered, nothing may be posted. RTS: WRITEs both ways. ERROR: posted WRITEs
# are flushed, arrivals are dropped. Each state leads to the next one, and to ERROR and RESET.


class QpState(StrEnum):
    """A state of a queue pair."""

    RESET = "RESET"
    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    ERROR = "ERROR"


class QpStateError(Exception):
    """The queue pair is not in a state that allows this."""


_NEXT: Final = {
    QpState.RESET: QpState.INIT,
    QpState.INIT: QpState.RTR,
    QpState.RTR: QpState.RTS,
}


def may_become(old: QpState, new: QpState) -> bool:
    """Whether a queue pair may be modified from `old` to `new`."""
    return new in (QpState.RESET, QpState.ERROR) or _NEXT.get(old) is new


def takes_arrivals(state: QpState) -> bool:
    """Whether a queue pair in `state` accepts packets and may send."""
    return state in (QpState.RTR, QpState.RTS)


class QueuePair:
    """One end of a reliable connection: RDMA WRITEs out, the peer's WRITEs into `memory`.

    It begins in RTS, unless `state` is another one. `select` makes a path selector of the user's
    own; without it the EV profile decides.

    Attributes:
        touched: whether it needs a turn: something has happened since the last `transmit` (an
            arrival, a post, a command), no EV could be chosen then, or others share its window.
            Otherwise `transmit` has nothing to do before its `deadlines`.
    """

    def __init__(
        self,
        config: QpConfig,
        memory: MemoryTable,
        congestion: Window | None = None,
        *,
        select: SelectorFactory | None = None,
        state: QpState = QpState.RTS,
    ) -> None:
        self.config = config
        self.touched = True
        self.congestion = congestion or Window(lambda: FixedWindow(config.cwnd))
        self._select = select
        self._memory = memory
        self._endpoint = Endpoint()
        self._state = state
        self._running = takes_arrivals(state)
        self._begin()

    def _begin(self) -> None:
        config = self.config
        self.counters = Counters()
        self.rtt = RttEstimator(config.base_rtt_ns)
        self._events: list[Event] = []
        rng = Random(config.seed)  # noqa: S311 - repeatable, not secret
        self._engine = EvEngine(config.ev_profile, self.rtt, rng, self._events, self._select)
        self._reverse = ReversePaths(self._engine, self.rtt, rng)
        self._requester = Requester(
            config,
            self._engine,
            self.rtt,
            self.congestion,
            self._events,
            self.counters,
            self._reverse,
            self._endpoint,
        )
        self._responder = Responder(
            config, self._memory, self._events, self.counters, self._reverse
        )

    def join(self, endpoint: Endpoint) -> None:
        """Share the endpoint of a NIC with its other queue pairs; a demultiplexer does it."""
        self._endpoint = endpoint
        self._requester.requests.join(endpoint)

    @property
    def state(self) -> QpState:
        """The state; ERROR as soon as the transport has given up."""
        return QpState.ERROR if self._requester.failed else self._state

    def modify(self, state: QpState, config: QpConfig | None = None) -> None:
        """Change the state, as the verbs `modify_qp` does.

        ERROR flushes what is posted: its completions say so. RESET forgets everything, unpolled
        completions, events and counters too; the PSNs begin again where the configuration says.
        RTS may bring another `config`, of which the first PSN, the peer's limits and the retries
        count.

        Raises:
            QpStateError: no such transition.
        """
        self.touched = True
        if not may_become(self.state, state):
            raise QpStateError(f"a queue pair in {self.state} cannot become {state}")
        if state is QpState.ERROR:
            self._requester.fail(CompletionStatus.FLUSHED)
            self._responder.delivery.flush()
        elif state is QpState.RESET:
            self._requester.flight.close()
            self.congestion.reset()
            self._begin()
        elif config is not None:
            self.config = config
            self._requester.begin(config)
        self._state = state
        self._running = takes_arrivals(state)

    def post_write(
        self,
        wr_id: int,
        payload: Payload,
        remote_va: int,
        rkey: int,
        immediate: int | None = None,
    ) -> None:
        """Queue an RDMA WRITE of `payload` (bytes) to `remote_va` under `rkey`.

        The payload is not copied: leave it unchanged until its completion has been polled. In state
        ERROR the request completes as flushed. With 32 bits of `immediate` data the WRITE completes
        at the peer too: the peer's `poll_recv_cq` returns the immediate once this WRITE and all
        before it are in its memory (OCP MRC 1.0).

        Raises:
            ValueError: the message, the addresses or the immediate do not fit the wire's fields.
            QpStateError: the QP is in RESET, INIT or RTR.
        """
        self.touched = True
        if self.state not in (QpState.RTS, QpState.ERROR):
            raise QpStateError(f"nothing can be posted to a queue pair in {self.state}")
        check_write(payload, remote_va, rkey, immediate)
        self._requester.queue.post(wr_id, payload, remote_va, rkey, immediate)

    def post_receive(self, wr_id: int) -> None:
        """Post a receive: a WRITE with immediate of the peer consumes one, oldest first.

        MRC has no RNR: where none is posted, the WRITE fails, and the peer's queue pair with it. In
        state ERROR the receive completes as flushed.

        Raises:
            QpStateError: the QP is in RESET.
        """
        self.touched = True
        if self._state is QpState.RESET:
            raise QpStateError("no receive can be posted to a queue pair in RESET")
        self._responder.delivery.post_receive(wr_id, flushed=self.failed)

    def receive(self, packet: Packet, arrival: Arrival) -> bool:
        """Process a packet addressed to this QP (`packet.qpn`), received at `arrival.rx_ns`.

        Returns whether it was accepted: it is from the peer, for this NIC, and the QP is in a state
        that takes arrivals.

        Raises:
            TypeError: an endpoint's request or response, which `Demux` handles.
        """
        self.touched = True
        if not self._accepts(packet):
            return False
        if isinstance(packet, RequestPacket):
            self._responder.receive(packet, arrival)
        elif isinstance(packet, ResponsePacket):
            self._requester.receive(packet, arrival.rx_ns)
        else:
            raise TypeError("a queue pair takes no endpoint request or response")
        return True

    def _accepts(self, packet: Packet) -> bool:
        """Whether to act on a packet; counts the reason if not."""
        if packet.source != self.config.peer_address:
            self.counters.not_a_peer += 1
        elif packet.destination != self.config.local_address:
            self.counters.misdirected += 1  # the iCRC does not cover the outer destination
        elif not self._running or self._requester.failed:
            self.counters.wrong_state += 1
        else:
            return True
        return False

    def transmit(self, now_ns: int, limit: int) -> list[Datagram]:
        """Return what to send now: all control packets, and at most `limit` data packets.

        Retransmissions come before new data. Call it after `receive` has had all arrivals: losses
        are judged here.
        """
        self.touched = self.congestion.shared
        if not self._running or self._requester.failed:
            return []
        self._requester.on_time(now_ns)
        dscp, options = self.config.dscp, self.config.wire
        datagrams: list[Datagram] = []
        for waiting in (self._responder.transmit(now_ns), self._requester.requests.packets):
            for packet in waiting:
                probes = isinstance(packet, ReliabilityProbe)
                datagrams.append(seal(packet, dscp.trimmable if probes else dscp.control, options))
            waiting.clear()
        datagrams += self._requester.transmit(now_ns, limit)
        if self._requester.stuck:
            self.touched = True
        return datagrams

    def deadlines(self) -> tuple[int, int]:
        """Return when to call `transmit` even if no packet arrives: for timers, and for data.

        `NEVER` if not at all; a time in the past, such as 0, means now.
        """
        requester = self._requester
        if not self._running or requester.failed:
            return NEVER, NEVER
        timer_ns = min(self._responder.deadline_ns, requester.timer_ns)
        return timer_ns, requester.data_ns

    def next_deadline(self) -> int | None:
        """Return the earlier of the two deadlines; None if never."""
        deadline_ns = min(self.deadlines())
        return None if deadline_ns == NEVER else deadline_ns

    def poll_cq(self) -> list[Completion]:
        """Return the completions since the last call, in the order of posting."""
        return self._requester.queue.take_completions()

    def poll_recv_cq(self) -> list[ReceiveCompletion]:
        """Return the receives that completed since the last call, in order."""
        if self.failed:
            self._responder.delivery.flush()
        return self._responder.delivery.take_completions()

    def events(self) -> list[Event]:
        """Return the events since the last call, for observers."""
        events = self._events[:]
        self._events.clear()
        return events

    def sample(self) -> QpSample:
        """Return the state of the requester, for observers."""
        return QpSample(self.congestion.window, self.flight, self.rtt.smoothed_ns)

    @property
    def failed(self) -> bool:
        return self.state is QpState.ERROR

    @property
    def given_up(self) -> bool:
        """Whether it is in state ERROR because of the transport: nobody has put it there."""
        return self._requester.failed and self._state is not QpState.ERROR

    @property
    def flight(self) -> int:
        """Payload bytes in flight."""
        return self._requester.flight.payload

    def set_mpr(self, mpr: int) -> None:
        """Advertise another responder window, `mpr` units of 128 PSNs, in SACKs from now on.

        Packets that the old window allowed are still accepted. (MRC transport: the window may be
        advertised dynamically.)

        Raises:
            ValueError: the two ends have not agreed on dynamic MPR; or it is not 1 to 255 (the
                window cannot be closed: the SACK that opens it again could be lost).
        """
        if not self.config.dynamic_mpr:
            raise ValueError("the ends of this queue pair have not agreed on dynamic MPR")
        if not 1 <= mpr <= MAX_MPR:
            raise ValueError(f"mpr must be 1 to {MAX_MPR} units of {MPR_UNIT} PSNs, not {mpr}")
        self._responder.set_mpr(mpr)

    def set_busy(self, busy: BusyState) -> None:
        """Set how the responder treats arriving packets from now on; `NOT_BUSY` ends it.

        Where a penalty ends, SACKs tell the peer to return to the window that it had before
        (`restore_cwnd`), unless its state says otherwise.
        """
        self._responder.set_busy(busy)

    @property
    def refused_busy(self) -> int:
        return self._responder.refused_busy

    def ev_states(self) -> dict[int, EvState]:
        return self._engine.states()

    def active_evs(self) -> frozenset[int]:
        return self._engine.active()

    def reverse_evs(self) -> dict[int, int]:
        """Return the reverse EV of each plane that has one: SACKs may travel on it."""
        return self._reverse.evs()

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Act on a change of the own port of `plane`, and tell the peer.

        A port that lost its carrier: its plane is left at once. One that has it again: its EVs are
        probed, then used.

        Raises:
            ValueError: ports are numbered 0 to 31.
        """
        self.touched = True
        self._requester.requests.port_changed(plane, up=up, now_ns=now_ns)
        self._requester.apply_port_changes(now_ns)

    def set_port_disabled(self, plane: int, *, disabled: bool, now_ns: int) -> None:
        """Take the own port of `plane` out of use by the operator's order, or allow it again.

        It has the effect of a lost carrier, on this queue pair and all others with the same peer.

        Raises:
            ValueError: ports are numbered 0 to 31.
        """
        self.touched = True
        self._requester.requests.port_disabled(plane, disabled=disabled, now_ns=now_ns)
        self._requester.apply_port_changes(now_ns)

    def down_planes(self) -> frozenset[int]:
        """Return the planes whose port is without carrier or disabled, here or at the peer."""
        return self._requester.requests.down_planes

    def evs(self) -> tuple[EvListing, ...]:
        """Return state, counts and last change of every EV."""
        return self._engine.listing()

    def replace_ev(self, ev: int, entry: EvEntry, now_ns: int) -> None:
        """Deny an EV, and use another of its plane in its place once that has answered probes.

        Raises:
            KeyError: the EV is not in the profile.
            ValueError: the other is in it already, or of another plane.
        """
        self.touched = True
        self._engine.replace(ev, entry, now_ns)

    def probe_evs(self, evs: Sequence[int], timeout_ns: int, now_ns: int) -> ProbeBatch:
        """Send an EV probe on each of these EVs; the batch collects the answers.

        Raises:
            KeyError: an EV is not in the profile.
        """
        self.touched = True
        batch = ProbeBatch([self._engine[ev].value for ev in evs], now_ns, now_ns + timeout_ns)
        self._requester.requests.probe(batch, now_ns)
        return batch

    def deny_ev(self, ev: int, now_ns: int) -> None:
        """Take an EV out of service by administrative order; KeyError if it is unknown."""
        self.touched = True
        self._engine.deny(ev, now_ns)

    def allow_ev(self, ev: int, now_ns: int) -> None:
        """Lift a denial; the EV must answer probes first. KeyError if it is not in the profile."""
        self.touched = True
        self._engine.allow(ev, now_ns)
