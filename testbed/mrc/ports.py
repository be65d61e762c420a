"""Port status between two NICs: which planes both of them can use.

When a port loses its carrier, the EVs of its plane leave the rotation at once, and the peer gets a
port status update so that it avoids the plane too. (The MRC paper, section 2, has a bitmap of port
states. Here it is the endpoint operation PORT_STATUS_UPDATE of OCP MRC 1.0, with the state of all
ports in one mask, 1 for one that is reachable; it holds for every queue pair with that peer.) The
update is repeated each RTT until it is answered, on all EVs in turn: where nothing is in flight,
nobody notices that a path is dead, and the peer may take an open port for a closed one. An older
update that arrives after a newer one is recognized by its timestamp, and ignored.
"""

from typing import Final

from testbed.mrc.constants import FIRST_PORT_BIT, NEVER

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
