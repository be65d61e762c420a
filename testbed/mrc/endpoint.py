"""A NIC, and what its queue pairs share: endpoint requests, the state of ports, room for probes.

An endpoint request goes to QPN 2 of the peer, and its response names nothing but the 16-bit id of
the request (OCP MRC 1.0). So the NIC has one table of the ids that are outstanding.

Port status says which planes both NICs can use; there is one `PortStatus` for each peer. When a
port loses its carrier, the EVs of its plane leave the rotation at once, and the peer gets a port
status update so that it avoids the plane too. (The MRC paper, section 2, has a bitmap of port
states. Here it is the endpoint operation PORT_STATUS_UPDATE of OCP MRC 1.0, with the state of all
ports in one mask, 1 for one that is reachable; it holds for every queue pair with that peer.) The
update is repeated each RTT until it is answered, on all EVs in turn: where nothing is in flight,
nobody notices that a path is dead, and the peer may take an open port for a closed one. An older
update that arrives after a newer one is recognized by its timestamp, and ignored.

After a large fault every queue pair probes many EVs: queue pairs times EVs, each RTT. So they share
one `ProbeBudget`.

`PortAttributes` is what the configurations of all queue pairs of a NIC have in common.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from testbed.mrc.config import QpConfig
from testbed.mrc.congestion.nscc_incast import CcProfile
from testbed.mrc.congestion.nscc_uec import UecProfile
from testbed.mrc.constants import FIRST_PORT_BIT, NEVER, REQUEST_ID_MASK, DscpClasses, EndpointOp
from testbed.mrc.entropy import EvProfile
from testbed.mrc.wire.codec import seal
from testbed.mrc.wire.control import EndpointRequest, EndpointResponse
from testbed.mrc.wire.datagram import Datagram
from testbed.mrc.wire.kinds import DEFAULT_OPTIONS, WireOptions, nominal_size

PORTS: Final = 32
"""Bits of a port status update's mask (OCP MRC 1.0)."""

_ALL: Final = (1 << PORTS) - 1

_TIMESTAMP_MASK: Final = 0xFFFF
_TIMESTAMP_HALF: Final = 1 << 15

_RECENT_RTTS: Final = 8
"""For this many base RTTs a timestamp tells which of two updates is older; it wraps after 32. Ours.
"""


class PortStatus:
    """The ports that are down at either end. Times in ns.

    Attributes:
        version: counts changes, so that each queue pair sees which it has acted on.
    """

    def __init__(self, base_rtt_ns: int) -> None:
        self._recent_ns = _RECENT_RTTS * base_rtt_ns
        self._without_carrier = 0
        self._disabled = 0
        self._peer = 0
        self._updates = 0
        self._sent = 0
        self._answered = 0
        self._newest: tuple[int, int] | None = None
        self._send_at_ns = NEVER
        self.version = 0

    @property
    def mask(self) -> int:
        """The mask to send to the peer: the ports that are reachable."""
        return _ALL & ~self._own

    @property
    def _own(self) -> int:
        """The own ports that are down: without carrier, or disabled by the operator."""
        return self._without_carrier | self._disabled

    @property
    def down(self) -> frozenset[int]:
        """The planes that cannot be used, because their port is down here or at the peer."""
        down = (self._own | self._peer) >> FIRST_PORT_BIT
        return frozenset(port for port in range(PORTS) if down >> port & 1)

    def set_local(self, plane: int, *, down: bool, now_ns: int) -> None:
        """Note that the own port of `plane` has lost its carrier, or has it again.

        Raises:
            ValueError: there is no such port.
        """
        before = self._own
        self._without_carrier = _with_bit(self._without_carrier, plane, down)
        self._announce(before, now_ns)

    def set_disabled(self, plane: int, *, disabled: bool, now_ns: int) -> None:
        """Take the own port of `plane` out of use by the operator's order, or allow it again.

        Raises:
            ValueError: there is no such port.
        """
        before = self._own
        self._disabled = _with_bit(self._disabled, plane, disabled)
        self._announce(before, now_ns)

    def _announce(self, before: int, now_ns: int) -> None:
        if self._own != before:
            self.version += 1
            self._updates += 1
            self._send_at_ns = now_ns

    def set_peer(self, mask: int, timestamp: int | None, now_ns: int) -> None:
        """Process an update of the peer.

        Args:
            mask: the ports that it can reach.
            timestamp: when it was sent, 16 bits of the peer's clock; None if that is unknown.
            now_ns: the time.
        """
        if self._newest is not None and timestamp is not None:
            newest, at_ns = self._newest
            older = (timestamp - newest) & _TIMESTAMP_MASK >= _TIMESTAMP_HALF
            if older and now_ns - at_ns <= self._recent_ns:
                return
        self._newest = None if timestamp is None else (timestamp, now_ns)
        down = _ALL & ~mask
        if down != self._peer:
            self._peer = down
            self.version += 1

    @property
    def deadline_ns(self) -> int:
        """When `due_update` has something to send, or `NEVER`."""
        return self._send_at_ns

    def due_update(self, now_ns: int, timeout_ns: int) -> tuple[int, bool] | None:
        """Return the number of the update to send now, if any, and whether it was sent before.

        It is repeated after `timeout_ns`.
        """
        if now_ns < self._send_at_ns:
            return None
        self._send_at_ns = now_ns + timeout_ns
        repeated = self._sent == self._updates
        self._sent = self._updates
        return self._updates, repeated

    def answered(self, number: int) -> None:
        """Process the answer to an update; stop repeating if it is the latest."""
        if number == self._updates:
            self._send_at_ns = NEVER


def _with_bit(mask: int, plane: int, value: bool) -> int:
    if not 0 <= plane < PORTS:
        raise ValueError(f"ports are numbered 0 to {PORTS - 1}, not {plane}")
    bit = 1 << plane + FIRST_PORT_BIT
    return mask | bit if value else mask & ~bit


_MAX_OUTSTANDING: Final = 1 << 13
"""The most requests that await an answer; beyond it the oldest counts as lost. Ours."""

_PROBE_BYTES: Final = 160
"""A probe on the wire, and a little more."""

_SHARE: Final = 64
"""Probes of EVs are at most 1/64 of what the NIC sends, probes of tails a quarter of that. Ours."""

_PROBES_PER_RTT: Final = 4
"""Probes that a NIC may send besides in a base RTT: without data it must find a path, too. Ours."""

_LONG_AGO_NS: Final = 1 << 62

_KEPT_RTTS: Final = 8
"""Room that was not used is kept for so many base RTTs, for what a fault condemns at once. Ours."""

Answered = Callable[[int], None]
"""Called with the time in ns when a request has been answered."""


class Spacing:
    """Keeps what is sent at a distance: a leaky bucket (GCRA, ITU-T I.371). Times in ns.

    Attributes:
        due_ns: when the next would be sent, if all were sent evenly.
    """

    def __init__(self) -> None:
        self.due_ns = -_LONG_AGO_NS

    def room(self, now_ns: int, interval_ns: int, kept_ns: int) -> int:
        """How many may be sent now, if room is kept for `kept_ns`."""
        return max(0, (now_ns - max(self.due_ns, now_ns - kept_ns)) // interval_ns + 1)

    def take(self, count: int, now_ns: int, interval_ns: int, kept_ns: int) -> int:
        """Use room for so many; return when the first of them may be sent."""
        first_ns = max(self.due_ns, now_ns - kept_ns)
        self.due_ns = first_ns + count * interval_ns
        return first_ns


class ProbeBudget:
    """How many probes the queue pairs of one NIC may send together. Times in ns.

    Over any time it is `_PROBES_PER_RTT` a base RTT and `1 / _SHARE` of the payload that they sent
    before, and what is kept of earlier times. Probes of tails have an account of their own, so that
    they do not wait behind those of EVs.
    """

    def __init__(self) -> None:
        self._evs = Spacing()
        self._tails = Spacing()
        self._sent = 0
        self._since_ns = 0
        self._interval_ns = 0

    def count_sent(self, payload: int) -> None:
        """Count payload bytes that a queue pair sends."""
        self._sent += payload

    def room(self, now_ns: int, rtt_ns: int) -> int:
        """How many probes of EVs may be sent now; `rtt_ns` is the base RTT."""
        return self._evs.room(now_ns, self._interval(now_ns, rtt_ns), _KEPT_RTTS * rtt_ns)

    def take(self, count: int, now_ns: int, rtt_ns: int) -> int:
        """Use room for so many probes of EVs; return when the first of them may be sent.

        Who takes room for one that is not there yet is served in turn.
        """
        interval_ns = self._interval(now_ns, rtt_ns)
        return self._evs.take(count, now_ns, interval_ns, _KEPT_RTTS * rtt_ns)

    def take_for_tail(self, now_ns: int, rtt_ns: int) -> bool:
        """Use room for the probe of a tail; returns whether there was any."""
        interval_ns, kept_ns = 4 * self._interval(now_ns, rtt_ns), _KEPT_RTTS * rtt_ns
        if not self._tails.room(now_ns, interval_ns, kept_ns):
            return False
        self._tails.take(1, now_ns, interval_ns, kept_ns)
        return True

    def _interval(self, now_ns: int, rtt_ns: int) -> int:
        """The time from one probe of an EV to the next, by what was sent in the last RTT."""
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns >= rtt_ns or not self._interval_ns:
            per_rtt = self._sent * rtt_ns // max(elapsed_ns, rtt_ns)
            probes = _PROBES_PER_RTT + per_rtt // (_SHARE * _PROBE_BYTES)
            self._interval_ns = max(rtt_ns // probes, 1)
            self._since_ns, self._sent = now_ns, 0
        return self._interval_ns


class _Outstanding(NamedTuple):
    peer: bytes
    op: EndpointOp
    answered: Answered


class Endpoint:
    """The endpoint of one NIC.

    Attributes:
        probes: how many probes its queue pairs may send.
        other_ops: responses whose op is not that of the request: counted, not refused, since
            sources disagree on the place of this field.
    """

    def __init__(self, first_id: int = 0) -> None:
        """Begin with nothing outstanding; the first request has the id after `first_id`."""
        self._last_id = first_id
        self._outstanding: dict[int, _Outstanding] = {}
        self._ports: dict[bytes, PortStatus] = {}
        self.probes: Final = ProbeBudget()
        self.other_ops = 0

    def ask(self, peer: bytes, op: EndpointOp, answered: Answered) -> int:
        """Register a request to a peer; returns its id, which no other outstanding request has."""
        outstanding = self._outstanding
        if len(outstanding) >= _MAX_OUTSTANDING:
            del outstanding[next(iter(outstanding))]
        request_id = (self._last_id + 1) & REQUEST_ID_MASK
        while request_id in outstanding:
            request_id = (request_id + 1) & REQUEST_ID_MASK
        self._last_id = request_id
        outstanding[request_id] = _Outstanding(peer, op, answered)
        return request_id

    def respond(self, response: EndpointResponse, now_ns: int) -> bool:
        """Process a response; returns whether it answers an outstanding request to its source."""
        request = self._outstanding.get(response.request_id)
        if request is None or request.peer != response.source:
            return False
        del self._outstanding[response.request_id]
        self.other_ops += response.op != request.op
        request.answered(now_ns)
        return True

    def ports(self, peer: bytes, base_rtt_ns: int) -> PortStatus:
        """The ports of this NIC and of a peer, for all queue pairs with it."""
        ports = self._ports.get(peer)
        if ports is None:
            ports = self._ports[peer] = PortStatus(base_rtt_ns)
        return ports

    def update_ports(self, update: EndpointRequest, now_ns: int) -> None:
        """Process a port status update of a peer; its queue pairs see it when they next send."""
        ports = self._ports.get(update.source)
        if ports is not None:
            timestamp = update.tx_timestamp if update.ftype == 1 else None
            ports.set_peer(update.port_mask, timestamp, now_ns)


def respond(
    request: EndpointRequest, dscp: DscpClasses, options: WireOptions = DEFAULT_OPTIONS
) -> Datagram:
    """Answer an endpoint request (QPN 2) on the EV that it came on, in the control class."""
    response = EndpointResponse(
        request.destination,
        request.source,
        request.ev,
        request.op,
        request.request_id,
        request.tx_timestamp,
    )
    return seal(response, dscp.control, options)


@dataclass(frozen=True, slots=True)
class PortAttributes:
    """A NIC, with what the configurations of all its queue pairs have in common.

    Attributes:
        address: the NIC's inner IPv6 address, 16 bytes.
        mtu: payload bytes of a full packet.
        base_rtt_ns: the round trip time of the longest path without queueing.
        rate_bps: the rate of all ports together.
        dilation: how many times slower than real the clock runs (see `CcProfile.derive`).
        trimming: whether the fabric trims at the last hop what it would drop.
    """

    address: bytes
    mtu: int
    base_rtt_ns: int
    rate_bps: int
    dilation: float = 1.0
    trimming: bool = True

    def qp_config(
        self,
        *,
        qpn: int,
        peer_qpn: int,
        peer_address: bytes,
        ev_profile: EvProfile,
        cwnd: int,
        seed: int = 0,
    ) -> QpConfig:
        """The configuration of a queue pair of this NIC, with defaults for everything else.

        Raises:
            ValueError: a value is out of its range.
        """
        return QpConfig(
            qpn=qpn,
            peer_qpn=peer_qpn,
            local_address=self.address,
            peer_address=peer_address,
            ev_profile=ev_profile,
            base_rtt_ns=self.base_rtt_ns,
            cwnd=cwnd,
            mtu=self.mtu,
            seed=seed,
        )

    def uec_profile(self, path_rtt_ns: int) -> UecProfile:
        """Ultra Ethernet's parameters for a queue pair whose own paths have this base RTT."""
        return UecProfile.derive(
            base_rtt_ns=self.base_rtt_ns,
            path_rtt_ns=path_rtt_ns,
            rate_bps=self.rate_bps,
            mtu=nominal_size(self.mtu, immediate=False, timestamp=True),
            trimming=self.trimming,
            dilation=self.dilation,
        )

    def cc_profile(self, path_rtt_ns: int) -> CcProfile:
        """NSCC's default parameters for a queue pair whose own paths have this base RTT."""
        return CcProfile.derive(
            base_rtt_ns=self.base_rtt_ns,
            path_rtt_ns=path_rtt_ns,
            rate_bps=self.rate_bps,
            mss=self.mtu,
            trimming=self.trimming,
            dilation=self.dilation,
        )
