"""The EVs of a QP: equally many in each plane, on random paths of the plane, some as backups.

MRC paper, section 3: typically 128-256 EVs per QP, equally many per plane, chosen at random by
senders that do not coordinate; a backup of the same plane replaces an EV that fails.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from testbed.model.errors import RefusedValueError
from testbed.model.fabric.addressing import Path, ev_for_path, path_count, path_of_ev, paths
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.part import ByKind, Part

MAX_DEFAULT_EVS = 256
DEFAULT_BACKUPS = 0.25
"""Share of a plane's EVs that are backups if the plane has more paths than EVs. Ours: the paper has
more than 100 active EVs and does not give the size of the backup set."""


@dataclass(frozen=True, slots=True)
class EvChoice:
    """One entropy value chosen for a QP.

    Attributes:
        value: its 32 bits, which each packet carries.
        path: the path that it selects.
        active: whether it carries data from the start; otherwise it is a backup.
        hashed: whether a switch's hash selects the path, so that the sender does not know it.
    """

    value: int
    path: Path
    active: bool
    hashed: bool = False


def ev_count(topology: Topology, src: Node, dst: Node, evs: int | None) -> int:
    """The number of EVs of a QP: `evs`, or if None the number of distinct paths, up to 256.

    It is rounded down to a multiple of the planes, so that all planes carry the same load.
    """
    count = min(path_count(topology, src, dst), MAX_DEFAULT_EVS) if evs is None else evs
    return max(count // topology.planes, 1) * topology.planes


def backups_per_plane(
    topology: Topology, src: Node, dst: Node, per_plane: int, share: float | None
) -> int:
    """The number of backups among a plane's EVs: a share of them, rounded down.

    If `share` is None it is a quarter if the plane has more paths than EVs, otherwise none: a
    backup would then leave a path unused, whose capacity is needed when all hosts send at full
    rate.
    """
    if share is None:
        paths_per_plane = path_count(topology, src, dst) // topology.planes
        share = DEFAULT_BACKUPS if paths_per_plane > per_plane else 0.0
    return int(per_plane * share)


def choose_evs(
    topology: Topology,
    src: Node,
    dst: Node,
    *,
    evs: int | None,
    backups: float | None,
    seed: int,
    lane: int = 0,
    hashed: bool = False,
) -> tuple[EvChoice, ...]:
    """Choose a QP's EVs, planes interleaved.

    If a plane has fewer paths than EVs, EVs share paths and differ in their entropy bits.

    Args:
        topology: the fabric.
        src: the sending host.
        dst: the receiving host.
        evs: their number; None: see `ev_count`.
        backups: the share of each plane's EVs that are backups; None: see `backups_per_plane`.
        seed: of the random choice, which also depends on the hosts.
        lane: the number of the QP among those of the pair; the choice depends on it too.
        hashed: whether switches hash EVs to paths: each EV has a path of its plane by chance, so
            that some have more EVs than others. The hash is computed in advance, as for the
            transports of `ecmp.py`; the value of an EV names the path that it is hashed to.
    """
    suffix = f"/{lane}" if lane else ""
    chooser = random.Random(f"{seed}/{src.name}/{dst.name}{suffix}")  # noqa: S311 - repeatable
    per_plane = ev_count(topology, src, dst, evs) // topology.planes
    active = per_plane - backups_per_plane(topology, src, dst, per_plane, backups)
    planes: list[list[EvChoice]] = []
    for plane in range(topology.planes):
        candidates = [path for path in paths(topology, src, dst) if path.plane == plane]
        chooser.shuffle(candidates)
        evs_of_plane = []
        for i in range(per_plane):
            entropy, place = divmod(i, len(candidates))
            if hashed:
                entropy, place = i, chooser.randrange(len(candidates))
            path = candidates[place]
            evs_of_plane.append(EvChoice(ev_for_path(path, entropy), path, i < active, hashed))
        planes.append(evs_of_plane)
    return tuple(ev for row in zip(*planes, strict=True) for ev in row)


def listed_evs(
    topology: Topology, src: Node, dst: Node, values: Sequence[int], backups: float
) -> tuple[EvChoice, ...]:
    """The EVs of an explicit or generated profile; the last ones of each plane are backups.

    Args:
        topology: the fabric.
        src: the sending host.
        dst: the receiving host.
        values: the EVs.
        backups: the share of each plane's EVs that are backups, rounded down.
    """
    chosen = [(value, path_of_ev(topology, src, dst, value)) for value in values]
    counts = Counter(path.plane for _, path in chosen)
    active = {plane: count - int(count * backups) for plane, count in counts.items()}
    evs = []
    for value, path in chosen:
        active[path.plane] -= 1
        evs.append(EvChoice(value, path, active[path.plane] >= 0))
    return tuple(evs)


# --------------------------------------------------------------------------------------------------
# EV profiles: which EVs a queue pair uses (`mrc_ctl.h`, OCP MRC API).
#
# The controller lists the EVs (explicit), or gives the fields that they are made of (generated), or
# leaves the choice to the NIC (auto). A generated EV is made of fields, the most significant first.
# Each field has its initial value, in which the bits of its mask are replaced by those of a number
# from `min` to `max`, in order.


EV_BITS = 32
MOST_EVS = 65536

Ev = Annotated[int, Field(ge=0, lt=1 << EV_BITS, strict=True)]


class EvField(Part):
    """A field of a generated EV."""

    width: int = Field(ge=1, le=EV_BITS, strict=True, description="its bits")
    initial: Ev = Field(default=0, description="its value where the mask has no bit")
    min: Ev = Field(default=0, description="least number that replaces the masked bits")
    max: Ev | None = Field(
        default=None, description="greatest number that replaces them; null: all that fit"
    )
    mask: Ev = Field(description="the bits that are generated; 0: the field is fixed")

    @model_validator(mode="after")
    def _check(self) -> Self:
        most = (1 << self.width) - 1
        for key, value in (("initial", self.initial), ("mask", self.mask)):
            if value > most:
                expected = f"at most {most:#x}, which {self.width} bits hold"
                raise RefusedValueError(expected, key=key)
        fitting = (1 << self.mask.bit_count()) - 1
        if self.largest > fitting:
            expected = f"at most {fitting}, which the {self.mask.bit_count()} bits of mask hold"
            raise RefusedValueError(expected, key="max", remedy="a mask with more bits")
        if self.min > self.largest:
            raise RefusedValueError(f"at most max, which is {self.largest}", key="min")
        return self

    @property
    def largest(self) -> int:
        """The greatest number that replaces the masked bits."""
        return (1 << self.mask.bit_count()) - 1 if self.max is None else self.max

    @property
    def count(self) -> int:
        """How many values the field can have."""
        return self.largest - self.min + 1

    def value(self, number: int) -> int:
        """The value of the field for a number, counted from 0, which stands for `min`."""
        value, rest = self.initial & ~self.mask, self.min + number
        for bit in range(self.width):
            if self.mask >> bit & 1:
                value |= (rest & 1) << bit
                rest >>= 1
        return value


class AutoProfile(Part):
    """The NIC chooses: equally many EVs in each plane, on random paths."""

    kind: Literal["auto"] = "auto"


class ExplicitProfile(Part):
    """The EVs are listed."""

    kind: Literal["explicit"] = "explicit"
    evs: tuple[Ev, ...] = Field(min_length=1, max_length=MOST_EVS, description="the EVs")

    @model_validator(mode="after")
    def _check(self) -> Self:
        twice = [ev for ev, count in Counter(self.evs).items() if count > 1]
        if twice:
            raise RefusedValueError(f"each EV once; {twice[0]:#010x} is listed twice", key="evs")
        return self

    def values(self, seed: int) -> tuple[int, ...]:
        del seed
        return self.evs


class GeneratedProfile(Part):
    """The EVs are made of fields."""

    kind: Literal["generated"] = "generated"
    evs: Annotated[int, Field(ge=1, le=MOST_EVS, strict=True)] = Field(
        description="number of EVs, chosen at random among those that the fields can have"
    )
    fields: tuple[EvField, ...] = Field(
        min_length=1,
        max_length=EV_BITS,
        description="the fields, from the most significant bit on; the bits behind them are 0",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        width = sum(field.width for field in self.fields)
        if width > EV_BITS:
            expected = f"fields of {EV_BITS} bits together at most, not {width}"
            raise RefusedValueError(expected, key="fields")
        possible = prod(field.count for field in self.fields)
        if self.evs > possible:
            raise RefusedValueError(
                f"at most {possible}, which these fields generate",
                key="evs",
                remedy="fewer EVs, a mask with more bits, or a wider range from min to max",
            )
        return self

    def values(self, seed: int) -> tuple[int, ...]:
        """The EVs, all different; the same seed repeats them."""
        chooser = random.Random(f"ev profile {seed}")  # noqa: S311 - repeatable
        counts = [field.count for field in self.fields]
        numbers = chooser.sample(range(prod(counts)), self.evs)
        return tuple(_assembled(self.fields, number) for number in numbers)


def _assembled(fields: Sequence[EvField], number: int) -> int:
    """The EV with this number among those that the fields can have."""
    ev, used = 0, 0
    for field in fields:
        number, digit = divmod(number, field.count)
        used += field.width
        ev |= field.value(digit) << EV_BITS - used
    return ev


ListedProfile = Annotated[ExplicitProfile | GeneratedProfile, ByKind()]
"""A profile that says which EVs there are."""

EvProfileKind = Annotated[AutoProfile | ExplicitProfile | GeneratedProfile, ByKind()]
"""Any profile."""


class EvProfileFile(Part):
    """A file with a profile."""

    ev_profile: ListedProfile = Field(description="the EVs")
