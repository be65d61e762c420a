"""The configuration of a queue pair."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from testbed.mrc.constants import (
    DEFAULT_EXPONENTIAL_RETRIES,
    DEFAULT_LINEAR_RETRIES,
    DEFAULT_MPR,
    DEFAULT_SACK_BYTES,
    MAX_EXPONENTIAL_RETRIES,
    MAX_LINEAR_RETRIES,
    MAX_MPR,
    MPR_UNIT,
    PENALTY_UNIT,
    TIMESTAMP_RTT_BITS,
    TIMESTAMP_SHIFT,
    DscpClasses,
    NackReason,
)
from testbed.mrc.entropy import EvProfile
from testbed.mrc.wire.kinds import DEFAULT_OPTIONS, WireOptions

# --------------------------------------------------------------------------------------------------
# The limits of one end of a queue pair: those announced at connection, and those while it is busy.
#
# MRC has no connection manager: the ends exchange this out of band (OCP MRC 1.0, four sources).
# Each attribute holds for one direction, that in which this end receives; dynamic MPR needs both
# ends.


VERSION: Final = 1
"""The version of the message."""

DEFAULT_IMMEDIATES: Final = 64
"""Ours; at least 32 must be supported (OCP MRC 1.0, four sources)."""

_MAX_IMMEDIATES: Final = (1 << 16) - 1


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The limits of one end of a queue pair, which it announces to its peer.

    Attributes:
        mpr: its responder window, in units of 128 PSNs (MAX_MPR_DEST).
        dynamic_mpr: whether it can change that window in SACKs, and obey such changes
            (DYNAMIC_MPR); used only if both ends can.
        immediates: how many WRITEs with immediate it takes at once (MAX_WIMM_DEST).
        trim_nack: whether it can answer a trimmed packet by a NACK, and use one (TRIM_NACK).

    Raises:
        ValueError: a value is out of its range.
    """

    mpr: int = DEFAULT_MPR
    dynamic_mpr: bool = False
    immediates: int = DEFAULT_IMMEDIATES
    trim_nack: bool = True

    def __post_init__(self) -> None:
        """Refuse what does not fit the API's fields."""
        if not 1 <= self.mpr <= MAX_MPR:
            raise ValueError(f"mpr must be 1 to {MAX_MPR}, not {self.mpr}")
        if not 1 <= self.immediates <= _MAX_IMMEDIATES:
            raise ValueError(f"immediates must be 1 to {_MAX_IMMEDIATES}, not {self.immediates}")

    def message(self) -> dict[str, Any]:
        """The message to the peer, as JSON can carry it."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def of_message(cls, message: Mapping[str, Any]) -> "Capabilities":
        """What a peer's message says.

        Raises:
            ValueError: it has another version, other attributes, or a wrong value.
        """
        if message.get("version") != VERSION:
            raise ValueError(
                f"the peer's capabilities have version {message.get('version')!r}, not {VERSION}"
            )
        values = {key: value for key, value in message.items() if key != "version"}
        expected = {field.name: type(field.default) for field in fields(cls)}
        if values.keys() != expected.keys():
            raise ValueError(f"capabilities have {', '.join(expected)}; not {', '.join(values)}")
        for name, kind in expected.items():
            if type(values[name]) is not kind:
                raise ValueError(f"{name} is {values[name]!r}, not of type {kind.__name__}")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class BusyState:
    """How a busy responder treats arriving packets.

    Attributes:
        penalty: the 128ths of its window that the peer gives up with each SACK, 0 to 127
            (OCP MRC 1.0, `rcv_cwnd_pen`).
        restores: whether it asks, when this penalty is over, for the window from before it.
        refusal: the reason of the NACK that answers a packet instead of placing it; None: none is
            refused.
        share: the share of new packets that it refuses, above 0 to 1.
        skips: whether packets of an EV are answered with m = 2: the peer shall not use it.

    Raises:
        ValueError: penalty or share is out of range.
    """

    penalty: int = 0
    restores: bool = True
    refusal: NackReason | None = None
    share: float = 1.0
    skips: Callable[[int], bool] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < PENALTY_UNIT:
            raise ValueError(f"a window penalty is 0 to {PENALTY_UNIT - 1}, not {self.penalty}")
        if not 0 < self.share <= 1:
            raise ValueError(f"a share of refused packets is above 0, up to 1, not {self.share}")


NOT_BUSY = BusyState()
"""The responder keeps up: no penalty, nothing is refused."""


_MAX_24_BITS: Final = (1 << 24) - 1


class RecoveryProbe(StrEnum):
    """The packet that probes an EV which is condemned, or a backup. Sources disagree."""

    RELIABILITY = "reliability"
    """A reliability probe, in the class of data (two sources)."""

    EV = "ev"
    """An EV probe, in the control class (one source)."""


@dataclass(frozen=True, slots=True)
class QpConfig:
    """The parameters of a queue pair. Both ends agree on `mtu` and the first PSNs.

    Addresses are the inner IPv6 addresses, 16 bytes each. `mtu` (payload bytes per packet) and
    `cwnd` (the fixed congestion window) are in bytes. `capabilities` are the limits of this end,
    `peer_capabilities` those of the other end. A SACK is sent for every `sack_bytes` of payload,
    where a packet counts at least 1,024, or `sack_delay` base RTTs after the first unreported one.
    With `timestamps` each WRITE has a TSETH.
    A packet asks for an acknowledgement at the end of what is queued, where the window is less than
    `sack_bytes`, and with `ask_when_full` where no further packet fits into the window.
    With `complete_on_sack` a WRITE completes when SACKs show that it has arrived, without an ACK.
    `nack_beyond` says whether a packet above the responder window is answered by a NACK, or
    dropped silently (sources disagree).
    Two of MRC's mechanisms can be switched off to measure their effect: without `ecn_skip` an ECN
    mark does not skip the EV; with `go_back` a loss causes all later packets in flight to be sent
    again.
    When the peer is silent, `tail_probes` probes are sent, then come `linear_retries` timeouts of
    one length (with `growing_timeouts` of linearly growing length) and `exponential_retries` of
    doubling length, then the QP fails; with 25 exponential retries it never fails.

    Raises:
        ValueError: a value is out of its range.
    """

    qpn: int
    peer_qpn: int
    local_address: bytes
    peer_address: bytes
    ev_profile: EvProfile
    base_rtt_ns: int
    cwnd: int
    mtu: int = 4096
    first_psn: int = 0
    peer_first_psn: int = 0
    capabilities: Capabilities = field(default_factory=Capabilities)
    peer_capabilities: Capabilities = field(default_factory=Capabilities)
    timestamps: bool = True
    nack_beyond: bool = True
    ask_when_full: bool = False
    complete_on_sack: bool = False
    growing_timeouts: bool = False
    recovery_probe: RecoveryProbe = RecoveryProbe.RELIABILITY
    sack_bytes: int = DEFAULT_SACK_BYTES
    sack_delay: float = 1 / 16
    ecn_skip: bool = True
    go_back: bool = False
    tail_probes: int = 2
    linear_retries: int = DEFAULT_LINEAR_RETRIES
    exponential_retries: int = DEFAULT_EXPONENTIAL_RETRIES
    seed: int = 0
    dscp: DscpClasses = field(default_factory=DscpClasses)
    wire: WireOptions = DEFAULT_OPTIONS

    @property
    def timestamp_shift(self) -> int:
        """The power of two of ns that is the unit of timestamps."""
        return max(TIMESTAMP_SHIFT, (self.base_rtt_ns - 1).bit_length() - TIMESTAMP_RTT_BITS)

    @property
    def own_unit(self) -> bool:
        """Whether the unit of timestamps is not the wire's 128 ns: the field `tsr`."""
        return self.timestamp_shift != TIMESTAMP_SHIFT

    @property
    def dynamic_mpr(self) -> bool:
        """Whether both ends can change the responder window in SACKs."""
        return self.capabilities.dynamic_mpr and self.peer_capabilities.dynamic_mpr

    @property
    def trim_nack(self) -> bool:
        """Whether this end answers a trimmed packet by a NACK: both ends can."""
        return self.capabilities.trim_nack and self.peer_capabilities.trim_nack

    @property
    def window_packets(self) -> int:
        return self.capabilities.mpr * MPR_UNIT

    def __post_init__(self) -> None:
        """Refuse values that do not fit the wire or cannot work."""
        for name, value, least, most in (
            ("qpn", self.qpn, 0, _MAX_24_BITS),
            ("peer_qpn", self.peer_qpn, 0, _MAX_24_BITS),
            ("first_psn", self.first_psn, 0, _MAX_24_BITS),
            ("peer_first_psn", self.peer_first_psn, 0, _MAX_24_BITS),
            ("linear_retries", self.linear_retries, 0, MAX_LINEAR_RETRIES),
            ("exponential_retries", self.exponential_retries, 0, MAX_EXPONENTIAL_RETRIES),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name} must be {least} to {most}, not {value}")
        if not len(self.local_address) == len(self.peer_address) == 16:  # noqa: PLR2004 - IPv6
            raise ValueError("an IPv6 address has 16 bytes")
        if self.mtu < 1 or self.cwnd < self.mtu:
            raise ValueError("the window must hold at least one packet of at least one byte")
        if self.sack_bytes < 1 or self.sack_delay < 0:
            raise ValueError("sack_bytes must be at least 1 and sack_delay not negative")
        if self.tail_probes < 1:
            raise ValueError(f"tail_probes must be at least 1, not {self.tail_probes}")
