"""A benchmark's figure: its samples, its target, and whether the median meets it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    Attributes:
        name: what was measured.
        unit: of samples and target; empty for a plain number.
        samples: one for every repeat.
        at_most: the target where less is better, else None.
        at_least: the target where more is better, else None.
    """

    name: str
    unit: str
    samples: tuple[float, ...]
    at_most: float | None = None
    at_least: float | None = None

    @property
    def median(self) -> float:
        """The middle sample."""
        return median(self.samples)

    @property
    def holds(self) -> bool:
        """Whether the median meets the target."""
        too_much = self.at_most is not None and self.median > self.at_most
        too_little = self.at_least is not None and self.median < self.at_least
        return not too_much and not too_little

    @property
    def target(self) -> str:
        """The target in words, empty if there is none."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g} {self.unit}".rstrip()
        if self.at_least is not None:
            return f"≥ {self.at_least:g} {self.unit}".rstrip()
        return ""

    def to_json(self) -> dict[str, object]:
        """The figure as plain data."""
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "samples": self.samples,
            "target": self.target,
            "holds": self.holds,
        }


def at_most(name: str, unit: str, samples: Sequence[float], target: float) -> Figure:
    """A figure of which less is better."""
    return Figure(name, unit, tuple(samples), at_most=target)


def at_least(name: str, unit: str, samples: Sequence[float], target: float) -> Figure:
    """A figure of which more is better."""
    return Figure(name, unit, tuple(samples), at_least=target)
