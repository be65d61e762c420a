"""The structures of OCP's mrc_ctl.h in a caller's memory (c/mrc_abi.h), and how to get at them."""

import errno
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, Self

from testbed.device.process_memory import Memory
from testbed.device.profiles import refuse
from testbed.device.protocol import Request
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.mrc.message import BoundsError, PayloadError

DEVICE_ATTR: Final = Struct("=I10I4xI4xQII")
PORT_ATTR: Final = Struct("=i")
FORMAT_ATTR: Final = Struct("=iii4xi4xQi4x128s")
EV_ATTR: Final = Struct("=iii4xQIIi4xi4xQi4xi4xQi4x128s")
CC_ATTR: Final = Struct("=iiQQ128s")
NSCC: Final = Struct("=B3xIIIfffffIB3xII")
EV_FIELD: Final = Struct("=5I")
EV_ENTRY: Final = Struct("=32sB32sB2xiI")
OLD_EVENT: Final = Struct("=Q32sB3xI")
"""As it was before 1.0.1; then the state follows."""
EVENT: Final = Struct("=Q32sB3xIi4x")
PROBE: Final = Struct("=H6x16s16si32sB3xI4x")
ANSWER: Final = Struct("=HBxIB3x")

_END: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class EvAttr:
    """struct mrc_ctl_ev_profile_attr."""

    state: int
    current: int
    mode: int
    format_id: int
    count: int
    min_active: int
    event_mask: int
    op: int
    entries: int
    entry_count: int
    fields_op: int
    fields: int
    field_count: int
    vendor: bytes

    @classmethod
    def load(cls, memory: Memory, request: Request) -> Self:
        """Read the structure of a call.

        Raises:
            OSError: it has another size, or is not there.
        """
        return cls(*load(memory, request, EV_ATTR))


def load(memory: Memory, request: Request, layout: Struct) -> tuple[Any, ...]:
    """Read the structure of a call.

    Raises:
        OSError: it has another size, or is not there.
    """
    _check_size(request, layout)
    return layout.unpack(read(memory, request.address, layout.size))


def store(memory: Memory, request: Request, layout: Struct, *values: Any) -> None:
    """Write the structure of a call.

    Raises:
        OSError: it has another size, or is not there.
    """
    _check_size(request, layout)
    write(memory, request.address, layout.pack(*values))


def _check_size(request: Request, layout: Struct) -> None:
    if request.length != layout.size:
        refuse(errno.EINVAL, f"a structure of {request.length} bytes, expected {layout.size}")


def read(memory: Memory, address: int, size: int) -> bytes:
    """Read from a caller's memory.

    Raises:
        OSError: it is not there.
    """
    _check_end(address, size)
    parts = []
    for start in range(0, size, PAYLOAD_MTU):
        part = min(PAYLOAD_MTU, size - start)
        try:
            parts.append(memory.read([(address + start, part)], part))
        except PayloadError as error:
            refuse(errno.EFAULT, str(error))
    return b"".join(parts)


def write(memory: Memory, address: int, data: bytes) -> None:
    """Write to a caller's memory.

    Raises:
        OSError: it is not there.
    """
    _check_end(address, len(data))
    for start in range(0, len(data), PAYLOAD_MTU):
        try:
            memory.write(address + start, data[start : start + PAYLOAD_MTU])
        except BoundsError as error:
            refuse(errno.EFAULT, str(error))


def _check_end(address: int, size: int) -> None:
    if address + size > _END:
        refuse(errno.EFAULT, f"{size} bytes at {address:#x} end beyond the address space")


def within(count: int, most: int, least: int = 0) -> int:
    """Return a number of the caller's.

    Raises:
        OSError: it is too large (E2BIG), or too small.
    """
    if not least <= count <= most:
        refuse(errno.E2BIG if count > most else errno.EINVAL, f"{count} of at most {most}")
    return count


def given(present: int, value: int) -> int | None:
    """A value that a mask says is there."""
    return value if present else None
