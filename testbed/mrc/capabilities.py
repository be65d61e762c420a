"""The limits of one end of a queue pair: those announced at connection, and those while it is busy.

MRC has no connection manager: the ends exchange this out of band (OCP MRC 1.0, four sources). Each
attribute holds for one direction, that in which this end receives; dynamic MPR needs both ends.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from testbed.mrc.constants import DEFAULT_MPR, MAX_MPR, PENALTY_UNIT, NackReason

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
        """Check the ranges."""
        if not 0 <= self.penalty < PENALTY_UNIT:
            raise ValueError(f"a window penalty is 0 to {PENALTY_UNIT - 1}, not {self.penalty}")
        if not 0 < self.share <= 1:
            raise ValueError(f"a share of refused packets is above 0, up to 1, not {self.share}")


NOT_BUSY = BusyState()
"""The responder keeps up: no penalty, nothing is refused."""
