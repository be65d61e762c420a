"""What is wrong with one direction of a link, or with a host's endpoint, at a moment.

Faults add up: the impairment of a place is the combination of all faults that are active there,
and healing one leaves the others. The controller, the simulator and the analysis share this.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from testbed.model.errors import RunFailedError
from testbed.model.units import show_duration, show_rate, show_share

PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class Impairment:
    """What is wrong with a place; by default nothing is.

    Attributes:
        cut: no carrier, at both ends of the link.
        blackhole: every packet vanishes.
        loss: share of packets lost at random.
        corrupt: share of packets in which a bit is flipped.
        rate: the rate that is left, as a share.
        path_loss: share of packets lost among those that take the path of `path_bits`.
        path_bits: the bits of an EV (its low half) that choose the path.
        delay_ns: added to the propagation delay, as emulated.
        frozen: of a host, its endpoint is stopped for a while.
        dead: of a host, its endpoint has ended.
        penalty: of a host, 128ths of the senders' windows that its SACKs take.
        unrestored: of a host, whether it does not give them back when the penalty is over.
        refusal: of a host, the reason with which it refuses packets; empty if it does not.
        refused: of a host, the share of new packets that it refuses.
        skipped_path: of a host, the path that its SACKs ask to leave; empty if there is none.
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
    penalty: int = 0
    unrestored: bool = False
    refusal: str = ""
    refused: float = 0.0
    skipped_path: str = ""

    @property
    def deliverable_share(self) -> float:
        """The share of its rate at which a place still delivers whole packets, at most.

        Loss on one path is left out: it reduces what the path delivers, not the direction.
        """
        if self.cut or self.blackhole or self.frozen or self.dead:
            return 0.0
        return self.rate * (1 - self.loss) * (1 - self.corrupt)

    @property
    def as_record(self) -> dict[str, Any]:
        """The attributes that differ from a healthy place's, as `faults.jsonl` records them."""
        healthy = asdict(HEALTHY)
        return {key: value for key, value in asdict(self).items() if value != healthy[key]}

    @property
    def busy(self) -> dict[str, Any]:
        """What makes a host's endpoint busy, by attribute; empty if it is not."""
        record = self.as_record
        return {key: record[key] for key in _BUSY if key in record}

    def combined_with(self, other: "Impairment") -> "Impairment":
        """Both at once, each acting as if the other were not there.

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
            penalty=max(self.penalty, other.penalty),
            unrestored=self.unrestored or other.unrestored,
            refusal=self.refusal or other.refusal,
            refused=_either(self.refused, other.refused),
            skipped_path=self.skipped_path or other.skipped_path,
        )


_BUSY = ("penalty", "unrestored", "refusal", "refused", "skipped_path")

HEALTHY = Impairment()
"""Nothing is wrong."""


def combined(impairments: Iterable[Impairment]) -> Impairment:
    """All of them at once.

    Raises:
        RunFailedError: they lose packets of different paths.
    """
    return reduce(Impairment.combined_with, impairments, HEALTHY)


def _either(a: float, b: float) -> float:
    """The probability of one of two independent events, rounded to PPM as the kernel draws it."""
    return round((1 - (1 - a) * (1 - b)) * PPM) / PPM


class ActiveFaults:
    """Which faults are active at which places at the moment."""

    def __init__(self) -> None:
        self._impairments: dict[str, dict[int, Impairment]] = {}

    def put(self, fault: int, places: Iterable[str], state: Impairment) -> None:
        """Set what a fault does to its places from now on; `HEALTHY` removes it."""
        for place in places:
            by_fault = self._impairments.setdefault(place, {})
            by_fault.pop(fault, None)
            if state != HEALTHY:
                by_fault[fault] = state

    @property
    def impairments(self) -> frozenset[tuple[str, Impairment]]:
        """Every place where something is wrong, and what: equal for equal states of a fabric.

        Raises:
            RunFailedError: faults lose packets of different paths at a place.
        """
        places = (place for place, by_fault in self._impairments.items() if by_fault)
        return frozenset((place, self.impairment_at(place)) for place in places)

    def impairment_at(self, place: str) -> Impairment:
        """What all faults together do to a place.

        Raises:
            RunFailedError: they lose packets of different paths there.
        """
        return combined(self._impairments.get(place, {}).values())


# --------------------------------------------------------------------------------------------------
# A fault as the link model's memory has it, in words: `loses 5%`, `drops everything`.


_FIELDS: dict[str, Callable[[int], str]] = {
    "blackhole": lambda _: "drops everything",
    "loss_ppm": lambda ppm: f"loses {show_share(ppm / PPM)}",
    "corrupt_ppm": lambda ppm: f"corrupts {show_share(ppm / PPM)}",
    "path_loss_ppm": lambda ppm: f"loses {show_share(ppm / PPM)} of one path's packets",
    "delay_ns": lambda ns: f"adds {show_duration(ns)}",
    "rate_bps": lambda bps: f"sends {show_rate(bps)}",
}
"""The fields that say what is wrong with a direction; others qualify these."""


def in_words(read_back: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """What is wrong with the directions of a fault, from the distinct values of each field."""
    for field, values in read_back.items():
        if field in _FIELDS:
            yield from map(_FIELDS[field], filter(None, values))
