"""Congestion controllers of a few methods, and the window that never changes."""

from testbed.mrc.congestion.control import LossCause, Report


class WindowControl:
    """The part that is common to controllers which only say how large the window is.

    It counts the payload in flight and hands on what a controller wants to know: sizes are payload
    bytes, times ns. Round trips of retransmissions are not handed on.

    Attributes:
        flight: payload bytes in flight, of all queue pairs that share the controller.
    """

    def __init__(self) -> None:
        """Begin with nothing in flight."""
        self.flight = 0

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""
        raise NotImplementedError

    def on_sack(self, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Take in a SACK: bytes newly acknowledged, the RTT it measured, whether ECN was seen."""

    def on_loss(self, lost: int, *, trimmed: bool, now_ns: int) -> None:
        """Take in a loss of `lost` bytes."""

    def on_penalty(self, penalty: int, *, restore: bool) -> None:
        """Take in the fields `rcv_cwnd_pen` (0-127) and `restore_cwnd` of a SACK."""

    def restart(self) -> None:
        """Begin again with the first window."""

    # The methods of CongestionControl

    def has_room(self, payload: int, nominal: int) -> bool:  # noqa: ARG002 - payload counts here
        """Whether a packet of this size may be sent now."""
        return self.flight + payload <= self.window

    def on_sent(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count it as in flight."""
        self.flight += payload

    def on_delivered(self, payload: int) -> None:
        """Count it as in flight no longer."""
        self.flight -= payload

    def on_withdrawn(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count it as in flight no longer."""
        self.flight -= payload

    def on_report(self, report: Report) -> None:
        """Hand on the penalty, and what was acknowledged."""
        acked, _, rtt_ns, repeated, ecn, penalty, restore, now_ns = report
        if penalty is not None:
            self.on_penalty(penalty, restore=restore)
        if acked is not None:
            self.on_sack(acked, None if repeated else rtt_ns, ecn=ecn, now_ns=now_ns)

    def on_lost(
        self,
        cause: LossCause,
        payload: int,
        nominal: int,  # noqa: ARG002
        rtt_ns: int | None,  # noqa: ARG002
        now_ns: int,
    ) -> None:
        """Count it as in flight no longer, and hand it on."""
        self.flight -= payload
        self.on_loss(payload, trimmed=cause is LossCause.TRIMMED, now_ns=now_ns)

    def reset(self) -> None:
        """Begin again, unless other queue pairs have packets in flight."""
        if self.flight == 0:
            self.restart()


class FixedWindow(WindowControl):
    """A window that never changes, for fabrics of known load and for tests."""

    def __init__(self, window: int) -> None:
        super().__init__()
        if window <= 0:
            raise ValueError(f"the congestion window must be positive, not {window} bytes")
        self._window = window

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""
        return self._window
