"""Congestion control: how many bytes may be in flight."""

from typing import Protocol


class CongestionControl(Protocol):
    """A sender-side window, clocked by SACKs. Sizes are payload bytes, times ns."""

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""

    def on_sack(self, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Take in a SACK: bytes newly acknowledged, the RTT it measured, whether ECN was seen."""

    def on_loss(self, lost: int, *, trimmed: bool, now_ns: int) -> None:
        """Take in a loss of `lost` bytes."""

    def reset(self) -> None:
        """Start again: the queue pair has been reset."""

    def on_penalty(self, penalty: int, *, restore: bool) -> None:
        """Take in the fields `rcv_cwnd_pen` (0-127) and `restore_cwnd` of a SACK."""


class FixedWindow:
    """A window that never changes, for fabrics of known load and for tests."""

    def __init__(self, window: int) -> None:
        if window <= 0:
            raise ValueError(f"the congestion window must be positive, not {window} bytes")
        self._window = window

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""
        return self._window

    def on_sack(self, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Change nothing."""

    def on_loss(self, lost: int, *, trimmed: bool, now_ns: int) -> None:
        """Change nothing."""

    def on_penalty(self, penalty: int, *, restore: bool) -> None:
        """Change nothing."""

    def reset(self) -> None:
        """Change nothing."""
