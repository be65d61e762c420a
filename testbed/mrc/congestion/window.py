"""Bytes in flight against the window of a controller, and the controller that never changes it."""

from collections.abc import Callable
from typing import Final

from testbed.mrc.congestion.control import CongestionController, LossReport, SackReport


class Window:
    """Counts the payload in flight, of all queue pairs that share a controller.

    `payload` is the size of a packet's payload, `nominal` that of the inner packet, in bytes.

    Attributes:
        controller: what decides about the window.
        flight: bytes in flight.
        window: bytes that may be in flight.
        shared: whether several queue pairs send into it: what one receives may let another send.
    """

    def __init__(self, make: Callable[[], CongestionController]) -> None:
        """Begin with nothing in flight.

        Args:
            make: makes the controller, now and when a queue pair is reset.
        """
        self._make: Final = make
        self.shared = False
        self._begin()

    def _begin(self) -> None:
        self.flight = 0
        self.controller = self._make()
        self.window = int(self.controller.window)

    def share(self) -> None:
        """Let another queue pair send into it, too."""
        self.shared = True

    def reset(self) -> None:
        """Begin again, as a queue pair is reset, unless others have packets in flight."""
        if self.flight <= 0:
            self._begin()

    def has_room(self, payload: int, nominal: int) -> bool:  # noqa: ARG002 - payload counts here
        """Whether a packet of this size may be sent now."""
        return self.flight + payload <= self.window

    def count_sent(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count a packet as in flight."""
        self.flight += payload

    def count_delivered(self, payload: int) -> None:
        """Count packets that have been acknowledged as in flight no longer."""
        self.flight -= payload

    def count_withdrawn(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count packets that a queue pair no longer waits for, whether they arrived or not.

        `nominal` may be negative: more than was sent has been reported as received.
        """
        self.flight -= payload

    def count_lost(self, payload: int, nominal: int) -> int:  # noqa: ARG002
        """Count a packet as in flight no longer; return the size to report to the controller."""
        self.flight -= payload
        return payload

    def count_received(self, acked: int, received: int) -> int:  # noqa: ARG002
        """Count what a SACK reports; return the arrived bytes to report to the controller.

        Args:
            acked: payload that it newly acknowledges; it has been counted as delivered.
            received: what the responder has newly counted in `rcvd_bytes`, in nominal sizes.
        """
        return acked

    # Reports to the controller

    def on_sack(self, sack: SackReport) -> None:
        """Process a SACK or a transport ACK."""
        self.controller.on_sack(sack)
        self.window = int(self.controller.window)

    def on_nack(self, nack: LossReport) -> None:
        """Process a NACK."""
        self.controller.on_nack(nack)
        self.window = int(self.controller.window)

    def on_loss(self, loss: LossReport) -> None:
        """Process a loss."""
        self.controller.on_loss(loss)
        self.window = int(self.controller.window)


class ReceiverWindow(Window):
    """Counts what is in flight by what the responder has counted, as UEC does (rule 2 of NSCC).

    All sizes are nominal. `flight` is signed: SACKs may report more than was sent.
    """

    def has_room(self, payload: int, nominal: int) -> bool:  # noqa: ARG002 - nominal sizes count
        """Whether a packet of this size may be sent now."""
        return self.flight + nominal <= self.window

    def count_sent(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count a packet as in flight."""
        self.flight += nominal

    def count_delivered(self, payload: int) -> None:
        """Do nothing: the responder's counter says what has arrived."""

    def count_withdrawn(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count packets that a queue pair no longer waits for."""
        self.flight -= nominal

    def count_lost(self, payload: int, nominal: int) -> int:  # noqa: ARG002
        """Count a packet as in flight no longer; return its nominal size."""
        self.flight -= nominal
        return nominal

    def count_received(self, acked: int, received: int) -> int:  # noqa: ARG002
        """Count what the responder has newly counted, and return it."""
        self.flight -= received
        return received


class FixedWindow:
    """A window that never changes, for fabrics of known load and for tests."""

    def __init__(self, window: int) -> None:
        """Take the window, in bytes.

        Raises:
            ValueError: it is not positive.
        """
        if window <= 0:
            raise ValueError(f"the congestion window must be positive, not {window} bytes")
        self.window: Final = window

    def on_sack(self, sack: SackReport) -> None:
        """Do nothing."""

    def on_nack(self, nack: LossReport) -> None:
        """Do nothing."""

    def on_loss(self, loss: LossReport) -> None:
        """Do nothing."""
