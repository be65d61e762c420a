"""What is run: the mode, the fabric, the EVs, and the path that dies."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from testbed.model.errors import InputError, Problem, raise_any
from testbed.model.fabric.addressing import Path
from testbed.model.fabric.ev_mode import (
    MOST_UPLINKS,
    PLANE_BITS,
    UPLINK_BITS,
    EvMode,
    core_ev,
    structured_path,
)
from testbed.model.fabric.ev_profile import EvField, GeneratedProfile, ListedProfile
from testbed.model.fabric.topology import Topology
from testbed.mrc import EvEntry

DILATION: Final = 5000
DEFAULT_ECMP_EVS: Final = 32
_HALF: Final = (1 << 16) - 1


@dataclass(frozen=True)
class Setting:
    """One run.

    Attributes:
        mode: how the fabric reads the path of a packet.
        planes: planes, and ports of each of the two hosts.
        t1s: T1s in each plane, and uplinks of each T0.
        profile: the EVs.
        seed: of the choice of generated EVs.
        dead: the path that dies; None: that of the first EV.
    """

    mode: EvMode
    planes: int
    t1s: int
    profile: ListedProfile
    seed: int
    dead: Path | None = None

    @property
    def topology(self) -> Topology:
        """The fabric: a rack for each of the hosts."""
        return Topology(
            name=f"ev-{self.mode}",
            planes=self.planes,
            t0_per_plane=2,
            t1_per_plane=self.t1s,
            hosts_per_t0=1,
            dilation=DILATION,
        )

    @property
    def entries(self) -> tuple[EvEntry, ...]:
        """The EVs as packets carry them, each with its plane.

        The NIC reads the plane in a structured EV. With ECMP the profile assigns ports in turn, and
        the host does not know which EVs share a path.
        """
        entries = []
        for number, ev in enumerate(self.profile.values(self.seed)):
            structured = self.mode is EvMode.STRUCTURED
            path = structured_path(ev) if structured else Path(number % self.planes, None)
            key = (path.plane, path.t1) if structured else (path.plane, ev)
            entries.append(EvEntry(core_ev(self.mode, ev), path.plane, key, active=True))
        return tuple(entries)

    def check(self, where: str = "--profile") -> None:
        """Refuse what cannot work.

        Raises:
            InputError: an EV has no path, or there is no such path to die.
        """
        raise_any(self._problems(where))
        if len({entry.plane for entry in self.entries}) < self.planes:
            raise InputError.of(where, "", f"EVs in each of the {self.planes} planes")

    def _problems(self, where: str) -> Iterator[Problem]:
        if self.mode is EvMode.STRUCTURED:
            if self.t1s > MOST_UPLINKS:
                remedy = "testbed ev run ecmp takes more: a T0 hashes EVs with one route"
                expected = f"at most {MOST_UPLINKS} T1s in a plane with structured EVs"
                yield Problem("--t1s", str(self.t1s), expected, remedy)
            for ev in self.profile.values(self.seed):
                path = structured_path(ev)
                if not self._exists(path):
                    fields = f"plane {path.plane}, uplink {path.t1}"
                    expected = (
                        f"a plane below {self.planes} in the first {PLANE_BITS} bits and an uplink "
                        f"below {self.t1s} in the next {UPLINK_BITS}"
                    )
                    yield Problem(where, f"the EV {ev:#010x}: {fields}", expected)
                    break
        if self.dead is not None and not self._exists(self.dead):
            expected = f"a path from p0/t1_0 to p{self.planes - 1}/t1_{self.t1s - 1}"
            yield Problem("--dead", self.dead.name, expected)

    def _exists(self, path: Path) -> bool:
        return path.plane < self.planes and path.t1 is not None and path.t1 < self.t1s


def default_profile(mode: EvMode, planes: int, t1s: int) -> GeneratedProfile:
    """With ECMP random EVs; structured EVs one for each path."""
    if mode is EvMode.ECMP:
        halves = (EvField(width=16, mask=_HALF),) * 2
        return GeneratedProfile(evs=DEFAULT_ECMP_EVS, fields=halves)
    fields = (
        EvField(width=PLANE_BITS, max=planes - 1, mask=(1 << PLANE_BITS) - 1),
        EvField(width=UPLINK_BITS, max=t1s - 1, mask=(1 << UPLINK_BITS) - 1),
    )
    return GeneratedProfile(evs=planes * t1s, fields=fields)
