"""Profiles that a controller makes: EV formats, EVs, congestion control (OCP's mrc_ctl.h).

A profile of any number begins in INIT, and nothing is kept of one that is there. It becomes usable
in two steps: OFFLINE with what it must have, then ONLINE. What does not fit is an `OSError` with
the errno of the interface.

The structures of that interface are in a caller's memory (c/mrc_abi.h), and are read there.
"""

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag
from math import isfinite, prod
from random import Random
from struct import Struct
from typing import Any, Final, NamedTuple, NoReturn, Self, TypeVar

from testbed.device.process_memory import Memory
from testbed.device.protocol import Request
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.mrc.congestion.nscc_incast import CcProfile
from testbed.mrc.message import BoundsError, PayloadError

EV_BYTES: Final = 32
STEV_BITS, SRV6_BITS = 32, 128
MAX_FIELDS: Final = 16
MAX_EVS: Final = 256
"""Of a profile; the NIC's own choice has no more."""
MAX_PROFILES: Final = 64


class ProfileState(IntEnum):
    """enum mrc_ctl_profile_state."""

    INIT = 0
    OFFLINE = 1
    ONLINE = 2


_STEPS: Final = {
    (ProfileState.INIT, ProfileState.OFFLINE),
    (ProfileState.OFFLINE, ProfileState.ONLINE),
    (ProfileState.ONLINE, ProfileState.OFFLINE),
    (ProfileState.OFFLINE, ProfileState.INIT),
}


class Format(IntFlag):
    """enum mrc_ctl_ev_fmt_mode, as far as this NIC has it."""

    STEV = 1
    SRV6 = 2


class EvMode(IntFlag):
    """enum mrc_ctl_ev_mode."""

    AUTO = 1
    EXPLICIT = 2
    GENERATED = 4


class EvStates(IntFlag):
    """enum mrc_ctl_ev_state."""

    GOOD = 1
    ASSUMED_BAD = 2
    DENIED = 4
    UNKNOWN = 1 << 31


class Ev(NamedTuple):
    """An EV as a controller names it: 32 bytes and the port, from 1 on."""

    value: bytes
    port: int


UNPOPULATED: Final = Ev(bytes(EV_BYTES), 0)


class EvField(NamedTuple):
    """struct mrc_ctl_ev_field: a part of a generated EV."""

    width: int
    init: int
    least: int
    most: int
    mask: int


def refuse(number: int, reason: str) -> NoReturn:
    """Refuse a call with an errno.

    Raises:
        OSError: always.
    """
    raise OSError(number, reason)


@dataclass(slots=True)
class Profile:
    """What profiles of all kinds have in common."""

    state: ProfileState = ProfileState.INIT

    def check_step(self, state: int | None, current: int | None) -> ProfileState | None:
        """The state to go to, if any; `current` is what the caller takes the state for.

        Raises:
            OSError: no such step.
        """
        if current is not None and current != self.state:
            refuse(errno.EINVAL, f"the profile is {self.state.name}")
        if state is None or state == self.state:
            return None
        if (self.state, state) not in _STEPS:
            refuse(errno.EINVAL, f"no step from {self.state.name} to {state}")
        return ProfileState(state)


@dataclass(slots=True)
class EvFormat(Profile):
    """An EV format: how an EV is made of fields, the first of them in its highest bits."""

    mode: Format = Format.STEV
    widths: tuple[int, ...] = ()

    @property
    def bits(self) -> int:
        """What an EV of this format has at most."""
        return STEV_BITS if self.mode is Format.STEV else SRV6_BITS

    def modify(
        self, state: int | None, current: int | None, mode: int | None, widths: Sequence[int] | None
    ) -> None:
        """Change it; None leaves a part as it is.

        Raises:
            OSError: it cannot be changed so.
        """
        step = self.check_step(state, current)
        if self.state is ProfileState.ONLINE and (mode is not None or widths is not None):
            refuse(errno.EINVAL, "the profile is ONLINE")
        if self.state is ProfileState.INIT and (step is None or mode is None):
            refuse(errno.EINVAL, "a profile in INIT needs its mode, to be OFFLINE")
        new = self.mode if mode is None else _format(mode)
        if widths is not None:
            most = STEV_BITS if new is Format.STEV else SRV6_BITS
            if len(widths) > MAX_FIELDS or sum(widths) > most:
                refuse(errno.E2BIG, f"fields of {sum(widths)} bits in a format of {most}")
            if not widths or 0 in widths or max(widths) > STEV_BITS:
                refuse(errno.EINVAL, f"a field has 1 to {STEV_BITS} bits")
        if step is ProfileState.ONLINE and not (widths or self.widths):
            refuse(errno.EINVAL, "a format needs fields, to be ONLINE")
        self.mode = new
        self.widths = self.widths if widths is None else tuple(widths)
        self.state = self.state if step is None else step


def _format(mode: int) -> Format:
    if mode not in (Format.STEV, Format.SRV6):
        refuse(errno.EINVAL, f"EV format {mode}")
    return Format(mode)


@dataclass(slots=True)
class EvProfileEntries(Profile):
    """An EV profile: the EVs that queue pairs with its number use.

    Attributes:
        mode: who chooses them.
        format_id: the number of their format.
        format: the format.
        min_active: how many of them must stay in use, whatever is lost on them.
        event_mask: the states that make an event when an EV enters them.
        evs: them; `UNPOPULATED` where there is none yet.
        fields: how they are generated.
        denied: those that the controller has denied.
    """

    mode: EvMode = EvMode.AUTO
    format_id: int = 0
    format: EvFormat = field(default_factory=EvFormat)
    min_active: int = 0
    event_mask: int = 0
    evs: list[Ev] = field(default_factory=list)
    fields: tuple[EvField, ...] = ()
    denied: set[Ev] = field(default_factory=set)

    def set_fields(self, fields: tuple[EvField, ...]) -> None:
        """Set the fields of generated EVs.

        Raises:
            OSError: they do not fit the format.
        """
        widths = self.format.widths
        wide = any(each.width > width for each, width in zip(fields, widths, strict=False))
        if len(fields) > len(widths) or wide:
            refuse(errno.E2BIG, f"{len(fields)} fields in a format of {widths} bits")
        for each in fields:
            full = 1 << each.width
            if not each.width or max(each.init, each.mask) >= full:
                refuse(errno.EINVAL, f"a field of {each.width} bits")
            if not each.least <= each.most < 1 << each.mask.bit_count():
                refuse(errno.EINVAL, f"values {each.least} to {each.most} for mask {each.mask:#x}")
        self.fields = fields

    def generate(self, seed: int, planes: int, count: int) -> None:
        """Generate EVs: combinations of the fields' values at random, always the same.

        Raises:
            OSError: there are no fields, or the format is another by now and they do not fit it.
        """
        if not self.fields:
            refuse(errno.EINVAL, "generated EVs need fields")
        self.set_fields(self.fields)
        sizes = [each.most - each.least + 1 for each in self.fields]
        total = prod(sizes)
        rng = Random(seed)  # noqa: S311 - repeatable, not secret
        chosen = set(range(total)) if total <= count else set[int]()
        while len(chosen) < min(count, total):
            chosen.add(rng.randrange(total))
        evs = (self._expand(number, sizes) for number in sorted(chosen))
        self.evs = [Ev(value, port_of(value, self.format.mode, planes)) for value in evs]

    def _expand(self, number: int, sizes: Sequence[int]) -> bytes:
        """The EV of a combination: each field's bits deposited in its mask, highest first."""
        total = bits = 0
        for each, size, width in zip(self.fields, sizes, self.format.widths, strict=False):
            number, value = divmod(number, size)
            deposited, value = each.init & ~each.mask, value + each.least
            for place in _bits(each.mask):
                deposited |= (value & 1) << place
                value >>= 1
            total, bits = total << width | deposited, bits + width
        if self.format.mode is Format.STEV:
            return total.to_bytes(4, "little").ljust(EV_BYTES, b"\0")
        return (total << SRV6_BITS - bits).to_bytes(16, "big").ljust(EV_BYTES, b"\0")


def _bits(mask: int) -> Iterator[int]:
    """The places of the bits of a mask, lowest first."""
    return (place for place in range(mask.bit_length()) if mask >> place & 1)


def stev(value: bytes) -> int:
    """The 32 bits of a STEV, which a program has in its own byte order."""
    return int.from_bytes(value[:4], "little")


def port_of(value: bytes, mode: Format, planes: int) -> int:
    """The port that an EV leads to: its path names the plane (`model/fabric/addressing.py`)."""
    if mode is Format.STEV:
        return (stev(value) >> 16 & 0x7) % planes + 1
    return (int.from_bytes(value[4:6], "big") >> 9 & 0x7) % planes + 1


@dataclass(slots=True)
class CcSettings(Profile):
    """A profile of congestion control.

    Attributes:
        enabled: whether it has any; without it the window never changes.
        changes: the parameters of NSCC that it sets; the others are those of the paths.
    """

    enabled: bool = True
    changes: dict[str, float] = field(default_factory=dict)

    def applied(self, defaults: CcProfile) -> CcProfile:
        """The parameters for paths whose defaults are given.

        Raises:
            ValueError: a value is out of its range.
        """
        if not all(isfinite(value) for value in self.changes.values()):
            raise ValueError("a parameter is not a number")
        known = {name: value for name, value in self.changes.items() if value or name != "base_rtt"}
        return replace(defaults, **known)  # type: ignore[arg-type]


P = TypeVar("P", bound=Profile)


def keep(known: dict[int, P], number: int, profile: P) -> None:
    """Keep a profile under its number; of one in INIT nothing is kept.

    Raises:
        OSError: there are too many.
    """
    if profile.state is ProfileState.INIT:
        known.pop(number, None)
        return
    if number not in known and len(known) >= MAX_PROFILES:
        refuse(errno.EINVAL, f"there are {MAX_PROFILES} profiles already")
    known[number] = profile


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
