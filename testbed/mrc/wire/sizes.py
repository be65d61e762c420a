"""The size with which a data packet counts in congestion control."""

from typing import Final

from testbed.mrc.constants import ICRC_BYTES
from testbed.mrc.wire.headers import IMMDT, RETH, TSETH
from testbed.mrc.wire.trimming import TRIMMED_BYTES

_TIMED: Final = TRIMMED_BYTES + RETH.size + ICRC_BYTES
"""All but the payload, its padding and an immediate, where there is a timestamp."""

_UNTIMED: Final = _TIMED - TSETH.size
_IMMEDIATE: Final = IMMDT.size


def nominal_size(payload: int, *, immediate: bool, timestamp: bool) -> int:
    """The bytes that a data packet adds to `rcvd_bytes`: the inner packet with its headers."""
    size = (_TIMED if timestamp else _UNTIMED) + payload + (-payload & 3)
    return size + _IMMEDIATE if immediate else size
