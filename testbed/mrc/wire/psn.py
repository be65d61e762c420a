"""Sequence numbers: 24-bit PSNs and 16-bit MSNs on the wire, unwrapped integers inside.

Inside the core a packet is identified by its `seq`, a PSN that never wraps; `wrap_*` and `unwrap_*`
convert, and for each data packet the masks, which need no call. Unwrapping is correct while both
ends differ by less than half the number space, which the responder window (at most 255 x 128 PSNs)
guarantees.
"""

from typing import Final

from testbed.mrc.constants import MSN_BITS, PSN_BITS

_PSN_SPAN: Final = 1 << PSN_BITS
PSN_MASK: Final = _PSN_SPAN - 1
_PSN_HALF: Final = _PSN_SPAN >> 1
_MSN_SPAN: Final = 1 << MSN_BITS
MSN_MASK: Final = _MSN_SPAN - 1
_MSN_HALF: Final = _MSN_SPAN >> 1


def wrap_psn(seq: int) -> int:
    """Return the 24-bit PSN of `seq`."""
    return seq & PSN_MASK


def unwrap_psn(psn: int, near: int) -> int:
    """Return the `seq` with this PSN that lies nearest to `near` (from -2^23 to 2^23 - 1 away)."""
    return near + ((psn - near + _PSN_HALF) & PSN_MASK) - _PSN_HALF


def unwrap_msn(msn: int, near: int) -> int:
    """Return the message number with this MSN nearest to `near` (-2^15 to 2^15 - 1 away)."""
    return near + ((msn - near + _MSN_HALF) & MSN_MASK) - _MSN_HALF
