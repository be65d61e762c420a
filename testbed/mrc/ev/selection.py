"""Path selection: which EV carries the next data packet.

`PathSelector` is the interface; `spray.py` has the two selectors of the project. A scenario can
name one of the user's own, which `own_selection.py` calls. EVs are integers in the interface, so
that a selector can run in a process of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.mrc.entropy import EvState


@dataclass(frozen=True, slots=True)
class EvInfo:
    """What is known about an EV before the first packet.

    Attributes:
        ev: the EV, 0 to 2^32 - 1.
        plane: the number of its plane.
        path: EVs with the same number share a path.
        active: whether it is in the active set at the start; the others are backups.
    """

    ev: int
    plane: int
    path: int
    active: bool


class PathSelector(Protocol):
    """Chooses the EV of each data packet. Times in ns of one clock, sizes in bytes of payload."""

    def pick(self, now_ns: int, flight: int, avoid: int | None) -> int | None:
        """Return the EV for the next data packet, or None to send nothing now.

        It is asked for each data packet, and for each probe that looks for a lost tail.

        Args:
            now_ns: the time.
            flight: bytes in flight.
            avoid: for a packet that is sent again, the EV on which it was lost.
        """

    def on_sack(self, ev: int, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Note that a packet that was sent on an EV has arrived.

        Args:
            ev: the EV.
            acked: bytes of the packet.
            rtt_ns: its round trip, where the SACK measured it.
            ecn: whether the SACK that measured it reported an ECN mark.
            now_ns: the time.
        """

    def on_nack(self, ev: int, reason: str, now_ns: int) -> None:
        """Note that a packet on an EV was refused, for instance as `TRIMMED`."""

    def on_loss(self, ev: int, reason: str, now_ns: int) -> None:
        """Note that a packet on an EV was declared lost.

        `reason`: `overtaken`, `late`, `silent EV` or `timeout`.
        """

    def on_state(self, ev: int, state: EvState, *, active: bool, now_ns: int) -> None:
        """Note that an EV changed its state, or entered or left the active set."""


SelectorFactory = Callable[[Sequence[EvInfo], int], PathSelector]
"""Makes the selector of a queue pair from its EVs and a seed."""
