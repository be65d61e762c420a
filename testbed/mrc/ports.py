"""Port status of one queue pair: which planes its NIC and the peer's NIC can use.

When a port loses its carrier, the EVs of its plane leave the rotation at once, and the peer gets a
port status update so that it avoids the plane too. (The MRC paper, section 2, has a bitmap of port
states. Here it is the endpoint operation PORT_STATUS_UPDATE of OCP MRC 1.0, with bit p set while
port p is down; sources disagree on where the bitmap travels and do not give its polarity.) The
update is repeated each RTT until it is answered. Its 16-bit id counts up, so that an older update
that arrives late is ignored.
"""

from typing import Final

from testbed.mrc.congestion.rtt import RttEstimator
from testbed.mrc.constants import NEVER

PORTS: Final = 32
"""Bits of a port status update's mask (OCP MRC 1.0)."""

_ID_MASK: Final = 0xFFFF
_ID_HALF: Final = 1 << 15


def _planes(mask: int) -> frozenset[int]:
    return frozenset(port for port in range(PORTS) if mask >> port & 1)


class PortStatus:
    """The ports that are down at either end. Times in ns."""

    def __init__(self, rtt: RttEstimator) -> None:
        self._rtt = rtt
        self._local = 0
        self._peer = 0
        self._update_id = 0
        self._peer_update_id: int | None = None
        self._send_at_ns = NEVER

    @property
    def mask(self) -> int:
        """The bitmap sent to the peer: bit p is set while port p is down."""
        return self._local

    @property
    def down(self) -> frozenset[int]:
        """The planes that cannot be used, because their port is down here or at the peer."""
        return _planes(self._local | self._peer)

    def set_local(self, plane: int, *, down: bool, now_ns: int) -> bool:
        """Set the state of the own port of `plane`; returns whether it changed.

        Raises:
            ValueError: there is no such port.
        """
        if not 0 <= plane < PORTS:
            raise ValueError(f"ports are numbered 0 to {PORTS - 1}, not {plane}")
        mask = self._local | 1 << plane if down else self._local & ~(1 << plane)
        if mask == self._local:
            return False
        self._local = mask
        self._update_id = (self._update_id + 1) & _ID_MASK
        self._send_at_ns = now_ns
        return True

    def set_peer(self, mask: int, update_id: int) -> bool:
        """Take in a port status update of the peer; returns whether a state changed."""
        last = self._peer_update_id
        if last is not None and not 0 < (update_id - last) & _ID_MASK < _ID_HALF:
            return False
        self._peer_update_id = update_id
        changed = mask != self._peer
        self._peer = mask
        return changed

    @property
    def deadline_ns(self) -> int:
        """When `due_update` has something to send, or `NEVER`."""
        return self._send_at_ns

    def due_update(self, now_ns: int) -> int | None:
        """Return the id of the update to send now, if any."""
        if now_ns < self._send_at_ns:
            return None
        self._send_at_ns = now_ns + self._rtt.timeout_ns
        return self._update_id

    def answered(self, update_id: int) -> None:
        """Take in the answer to an update; stop repeating if it is the latest."""
        if update_id == self._update_id:
            self._send_at_ns = NEVER
