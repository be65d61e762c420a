"""What all actuators share: a clock, the time of an effect, the state of a link."""

from dataclasses import dataclass, replace
from typing import Protocol

from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.errors import RunFailedError
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.units import NS_PER_S

SPIN_NS = 2_000_000
"""The last stretch before a time is spent watching the clock: a sleep ends late by a tick."""


class Clock(Protocol):
    """CLOCK_MONOTONIC, and a sleep during which other work goes on; a virtual one in tests."""

    def now_ns(self) -> int:
        """Read the clock."""

    def sleep(self, seconds: float) -> None:
        """Return no earlier than this, perhaps later."""


def wait_until(clock: Clock, deadline_ns: int) -> None:
    """Return at a time: sleep for most of the wait, then watch the clock."""
    while (remaining_ns := deadline_ns - clock.now_ns()) > SPIN_NS:
        clock.sleep((remaining_ns - SPIN_NS) / NS_PER_S)
    while clock.now_ns() < deadline_ns:
        pass


class FaultError(RunFailedError):
    """A fault did not take effect, leaked, or did not heal."""


@dataclass(frozen=True, slots=True)
class Effect:
    """When a change took effect: at a time within an interval of CLOCK_MONOTONIC.

    Attributes:
        after_ns: nothing had changed before this.
        by_ns: it held for every packet from here on.
        routes: how many routes and neighbours were restored with carrier, and read back.
    """

    after_ns: int
    by_ns: int
    routes: int = 0


@dataclass(frozen=True, slots=True)
class LinkImpairments:
    """The impairments of a link's two directions."""

    up: Impairment = HEALTHY
    down: Impairment = HEALTHY

    @property
    def cut(self) -> bool:
        """Whether it has no carrier."""
        return self.up.cut or self.down.cut

    @property
    def directions(self) -> tuple[Impairment, Impairment]:
        """Both, the way up first."""
        return self.up, self.down

    @property
    def without_cut_and_blackhole(self) -> "LinkImpairments":
        """The same with carrier and without blackholes."""
        return LinkImpairments(*(replace(d, cut=False, blackhole=False) for d in self.directions))


def check_carrier(links: LinkControl, link: str, *, cut: bool) -> None:
    """Check that both ends of a link have carrier, or neither of a link that is cut.

    Raises:
        FaultError: they have not.
    """
    carrier, expected = links.carrier(link), (not cut, not cut)
    if carrier != expected:
        raise FaultError(f"{link}: carrier {carrier} at its ends, not {expected}")
