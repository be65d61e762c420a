"""What a data packet counts in the accounting of congestion control."""

from testbed.mrc.constants import ICRC_BYTES
from testbed.mrc.wire.headers import IMMDT, RETH, TSETH
from testbed.mrc.wire.trimming import TRIMMED_BYTES


def nominal_size(payload: int, *, immediate: bool, timestamp: bool) -> int:
    """What a data packet counts in `rcvd_bytes`: the size of the inner packet, with its headers."""
    size = TRIMMED_BYTES + RETH.size + payload + (-payload & 3) + ICRC_BYTES
    if not timestamp:
        size -= TSETH.size
    return size + IMMDT.size if immediate else size
