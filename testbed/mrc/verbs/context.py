"""The context of the verbs API: it registers memory, creates queue pairs and drives them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from testbed.mrc.config import PortAttributes
from testbed.mrc.congestion.nscc_incast import CcProfile, Nscc
from testbed.mrc.congestion.nscc_uec import UecNscc, UecProfile
from testbed.mrc.congestion.window import FixedWindow, ReceiverWindow, Window
from testbed.mrc.constants import FIRST_QPN, DscpClasses
from testbed.mrc.demux import Demux
from testbed.mrc.ev.profile import EvEntry, EvProfile
from testbed.mrc.events import Event
from testbed.mrc.memory import MemoryRegion, MemoryTable, Region
from testbed.mrc.qp import QueuePair
from testbed.mrc.state import QpState
from testbed.mrc.verbs.queue_pair import CompletionQueue, Destination, QpAttributes, VerbsQp
from testbed.mrc.wire.datagram import Arrival, Datagram, Outbound
from testbed.mrc.wire.options import DEFAULT_OPTIONS, WireOptions
from testbed.mrc.wire.packets import Buffer

_FIRST_VA: Final = 0x7000_0000_0000
_VA_ALIGNMENT: Final = 1 << 21
_MIN_RKEY: Final = 1 << 8


@dataclass(frozen=True, slots=True)
class PeerPaths:
    """How a peer is reached: the EVs that lead to it, and the base RTT of their paths."""

    evs: tuple[EvEntry, ...]
    rtt_ns: int


_DEFAULT_ATTRIBUTES: Final = QpAttributes()


EvProfileOf = Callable[[tuple[EvEntry, ...]], EvProfile]
"""Makes an EV profile of the EVs that lead to a peer: `EvProfile`, or a `partial` of it."""


class Context:
    """An opened device: memory regions, completion queues and queue pairs.

    Args:
        port: the NIC.
        paths_to: finds how a peer's address is reached; raises ValueError where it is not.
        rng: chooses rkeys and first PSNs, as a NIC does, so that a stray packet fits none.
        wire: how packets are written where sources disagree; peers must agree on it.
        first_qpn: the number of its first queue pair.
    """

    def __init__(
        self,
        port: PortAttributes,
        paths_to: Callable[[bytes], PeerPaths],
        rng: Random,
        wire: WireOptions = DEFAULT_OPTIONS,
        first_qpn: int = FIRST_QPN,
    ) -> None:
        self.port = port
        self._paths_to = paths_to
        self._rng = rng
        self._now_ns = 0
        self._down: set[int] = set()
        self._dscp = DscpClasses()
        self._memory = MemoryTable()
        self._wire = wire
        self._demux = Demux(port.address, self._dscp, wire)
        self._cores: list[QueuePair] = []
        self._turn = 0
        self._rkeys: set[int] = set()
        self._next_va = _FIRST_VA
        self._next_qpn = first_qpn

    def reg_mr(self, buffer: bytearray | memoryview) -> MemoryRegion:
        """Register memory: peers may WRITE to it by the region's `va` and `rkey`.

        Raises:
            ValueError: the buffer is read-only or not made of bytes.
        """
        region = MemoryRegion(self.new_rkey(), self._next_va, memoryview(buffer))
        self._memory.register(region)
        self._next_va += (len(region.buffer) // _VA_ALIGNMENT + 2) * _VA_ALIGNMENT
        return region

    def dereg_mr(self, region: Region) -> None:
        """Take a region out of the peers' reach: a WRITE to it is a remote access error.

        Raises:
            KeyError: it is not registered.
        """
        self._memory.deregister(region.rkey)
        self.free_rkey(region.rkey)

    def new_rkey(self) -> int:
        """Return an rkey that no region of this device has."""
        rkey = self._rng.randrange(_MIN_RKEY, 1 << 32)
        while rkey in self._rkeys:
            rkey = self._rng.randrange(_MIN_RKEY, 1 << 32)
        self._rkeys.add(rkey)
        return rkey

    def free_rkey(self, rkey: int) -> None:
        """Let an rkey be used again."""
        self._rkeys.discard(rkey)

    def create_cq(self) -> CompletionQueue:
        """Make a completion queue; any number of queue pairs may share it."""
        return CompletionQueue()

    def create_qp(
        self,
        cq: CompletionQueue,
        *,
        ev_profile: EvProfileOf = EvProfile,
        cc_profile: CcProfile | UecProfile | FixedWindow | None = None,
        attributes: QpAttributes = _DEFAULT_ATTRIBUTES,
    ) -> VerbsQp:
        """Make a queue pair in RESET.

        Args:
            cq: where it reports completions.
            ev_profile: makes its EV profile, such as `partial(EvProfile, ev_min_active=4)`.
            cc_profile: the parameters of NSCC (a `UecProfile` brings Ultra Ethernet's rules), or
                `FixedWindow(bytes)`, which never changes; if None, the defaults for the peer's
                paths, as `query_cc_profile` returns them.
            attributes: capabilities, retries and MTU.
        """
        psn = self._rng.randrange(1 << 24)
        local = Destination(self.port.address, self._next_qpn, psn, attributes.capabilities)
        self._next_qpn += 1
        open_core = partial(self._open_core, ev_profile, cc_profile)
        qp = VerbsQp(cq, local, attributes, self._memory, open_core, self._close_core)
        cq.attach(qp)
        return qp

    def destroy_qp(self, qp: VerbsQp) -> None:
        """Forget a queue pair and what it has posted."""
        qp.cq.detach(qp)
        qp.modify(QpState.RESET)

    def query_cc_profile(self, peer: bytes | None = None) -> CcProfile:
        """Return the default parameters of NSCC for this NIC; `dataclasses.replace` changes them.

        Args:
            peer: the address of the peer whose paths they are for; if None, the longest paths.

        Raises:
            ValueError: no NIC of the fabric has this address.
        """
        return self.port.cc_profile(
            self.port.base_rtt_ns if peer is None else self._paths_to(peer).rtt_ns
        )

    def _open_core(
        self,
        ev_profile: EvProfileOf,
        cc_profile: CcProfile | UecProfile | FixedWindow | None,
        qp: VerbsQp,
        peer: Destination,
    ) -> QueuePair:
        """Return the core of a queue pair that has learnt its peer, in RTR."""
        port, paths = self.port, self._paths_to(peer.address)
        local, attributes = qp.local, qp.attributes
        if isinstance(cc_profile, FixedWindow):
            congestion = Window(lambda: cc_profile)
        elif isinstance(cc_profile, UecProfile):
            congestion = ReceiverWindow(partial(UecNscc, cc_profile))
        else:
            congestion = Window(partial(Nscc, cc_profile or port.cc_profile(paths.rtt_ns)))
        config = replace(
            port.qp_config(
                qpn=local.qpn,
                peer_qpn=peer.qpn,
                peer_address=peer.address,
                ev_profile=ev_profile(paths.evs),
                cwnd=congestion.window,
                seed=self._rng.randrange(1 << 32),
            ),
            capabilities=local.capabilities,
            peer_capabilities=peer.capabilities,
            linear_retries=attributes.linear_retries,
            exponential_retries=attributes.exponential_retries,
            mtu=attributes.mtu or port.mtu,
            first_psn=local.psn,
            peer_first_psn=peer.psn,
            dscp=self._dscp,
            wire=self._wire,
        )
        core = QueuePair(config, qp.memory, congestion, state=QpState.RTR)
        self._demux.add(core)
        for plane in self._down:
            core.port_changed(plane, up=False, now_ns=self._now_ns)
        self._cores.append(core)
        return core

    def _close_core(self, core: QueuePair) -> None:
        self._demux.remove(core)
        self._cores.remove(core)
        self._turn = 0

    # What drives it

    def receive(self, data: Buffer, arrival: Arrival) -> Outbound | None:
        """Process the bytes of an inner packet; return an answer to send at once, if any.

        No view of `data` is kept.
        """
        return self._demux.receive(data, arrival)

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Tell every queue pair that the own port of a plane lost its carrier, or has it again.

        Raises:
            ValueError: ports are numbered 0 to 31.
        """
        self._now_ns = now_ns
        if up:
            self._down.discard(plane)
        else:
            self._down.add(plane)
        for core in self._cores:
            core.port_changed(plane, up=up, now_ns=now_ns)

    def transmit(self, now_ns: int, limit: int) -> list[Outbound]:
        """Return what to send now, at most `limit` data packets; queue pairs take turns."""
        packets = self.transmit_by_qp(now_ns, limit)
        return [Outbound(core.config.peer_address, datagram) for core, datagram in packets]

    def transmit_by_qp(self, now_ns: int, limit: int) -> list[tuple[QueuePair, Datagram]]:
        """Return the same, each packet with the core of its queue pair, for observers.

        The turn passes to the queue pair after the one that used up the limit, not simply to the
        next: behind many that have nothing to send one would get the turn of all of them.
        """
        self._now_ns = now_ns
        cores, first = self._cores, self._turn
        sent: list[tuple[QueuePair, Datagram]] = []
        for place in range(first, first + len(cores)):
            core = cores[place % len(cores)]
            datagrams = core.transmit(now_ns, limit)
            data = sum(datagram.is_data for datagram in datagrams)
            if data:
                self._turn = (place + 1) % len(cores)
            limit -= data
            sent.extend((core, datagram) for datagram in datagrams)
        return sent

    def next_deadline(self) -> int | None:
        """Return when to call `transmit` even if nothing arrives; None if never."""
        deadlines = (core.next_deadline() for core in self._cores)
        return min((time for time in deadlines if time is not None), default=None)

    def take_events(self) -> list[Event]:
        """Return the events since the last call, for observers; they accumulate until then."""
        return [event for core in self._cores for event in core.events()]

    def events_by_qp(self) -> list[tuple[QueuePair, list[Event]]]:
        """Return the same of each queue pair, with its core."""
        return [(core, core.events()) for core in self._cores]

    def refused(self) -> dict[str, int]:
        """Return how many packets were not acted on, by reason (see `Demux.refused`)."""
        return self._demux.refused()
