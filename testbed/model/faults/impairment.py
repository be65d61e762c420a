"""What is wrong with one direction of a link, or with a host's endpoint, at a moment.

Faults add up: what acts on a place is the combination of all that are in force there, and healing
one leaves the others. The emulation's controller, the simulator and the analysis share this.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from testbed.model.errors import RunFailedError

PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class Impairment:
    """The state of a place; as it stands by default nothing is wrong.

    Attributes:
        cut: no carrier, at both ends of the link.
        blackhole: everything vanishes.
        loss: share of packets lost at random.
        corrupt: share of packets in which a bit is flipped.
        rate: what is left of the rate, as a share.
        path_loss: share of the packets lost that take the path named by ...
        path_bits: ... these bits of their EV (the low half).
        delay_ns: what is added to the propagation delay, as emulated.
        frozen: of a host, its endpoint does not run, for now.
        dead: of a host, its endpoint has ended.
    """

    cut: bool = False
    blackhole: bool = False
    loss: float = 0.0
    corrupt: float = 0.0
    rate: float = 1.0
    path_loss: float = 0.0
    path_bits: int = 0
    delay_ns: int = 0
    frozen: bool = False
    dead: bool = False

    @property
    def passes(self) -> float:
        """The share of its rate at which a direction still delivers whole packets, at most.

        Loss on a chosen path is left out: it is the path's, not the direction's.
        """
        if self.cut or self.blackhole or self.frozen or self.dead:
            return 0.0
        return self.rate * (1 - self.loss) * (1 - self.corrupt)

    @property
    def told(self) -> dict[str, Any]:
        """What is wrong, for people and files: nothing that is as it should be."""
        whole = asdict(WHOLE)
        return {key: value for key, value in asdict(self).items() if value != whole[key]}

    def and_(self, other: "Impairment") -> "Impairment":
        """Both at once, each as if the other were not there.

        Raises:
            RunFailedError: they lose packets of two different paths: a place has room for one.
        """
        if self.path_loss and other.path_loss and self.path_bits != other.path_bits:
            raise RunFailedError("one direction cannot lose packets of two paths at a time")
        path = self if self.path_loss else other
        return Impairment(
            cut=self.cut or other.cut,
            blackhole=self.blackhole or other.blackhole,
            loss=_either(self.loss, other.loss),
            corrupt=_either(self.corrupt, other.corrupt),
            rate=min(self.rate, other.rate),
            path_loss=_either(self.path_loss, other.path_loss),
            path_bits=path.path_bits,
            delay_ns=self.delay_ns + other.delay_ns,
            frozen=self.frozen or other.frozen,
            dead=self.dead or other.dead,
        )


WHOLE = Impairment()
"""Nothing is wrong."""


def together(impairments: Iterable[Impairment]) -> Impairment:
    """All at once.

    Raises:
        RunFailedError: they lose packets of different paths.
    """
    return reduce(Impairment.and_, impairments, WHOLE)


def _either(a: float, b: float) -> float:
    """The chance of one of two independent events, to the millionth that the kernel draws by."""
    return round((1 - (1 - a) * (1 - b)) * PPM) / PPM


class InForce:
    """Which faults are in force where, at the moment."""

    def __init__(self) -> None:
        """Nothing is wrong anywhere."""
        self._acting: dict[str, dict[int, Impairment]] = {}

    def put(self, fault: int, places: Iterable[str], state: Impairment) -> None:
        """Have a fault do this to its places from now on; `WHOLE` takes it away."""
        for place in places:
            acting = self._acting.setdefault(place, {})
            acting.pop(fault, None)
            if state != WHOLE:
                acting[fault] = state

    def at(self, place: str) -> Impairment:
        """What all faults together do to a place.

        Raises:
            RunFailedError: they lose packets of different paths there.
        """
        return together(self._acting.get(place, {}).values())
