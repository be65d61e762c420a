"""How a metric is distributed over flows, or pairs of hosts: what the worst of many hides."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, isinf
from statistics import median
from typing import Self

from pydantic import BaseModel, ConfigDict

from testbed.model.summary.metric import Metric, MetricGroup, View, least
from testbed.model.summary.unit import MaybeNever

P99 = 0.99


class Spread(BaseModel):
    """How one number is distributed over flows, or pairs of hosts.

    Attributes:
        count: how many of them have a value.
        never: how many of these values are NEVER.
        median: the median; NEVER is more than any number.
        p99: 99% are no worse.
        worst: the worst.
        worst_of: the one with the worst, as `h0 -> h4`.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    count: int
    never: int
    median: MaybeNever
    p99: MaybeNever
    worst: MaybeNever
    worst_of: str

    @classmethod
    def of(cls, numbers: Sequence[tuple[float, str]], *, least_is_worst: bool) -> Self:
        """Of one number or more, each with the name of what it is of."""
        ordered = sorted(numbers, reverse=least_is_worst, key=lambda item: item[0])
        values = [number for number, _ in ordered]
        worst, name = ordered[-1]
        return cls(
            count=len(values),
            never=sum(map(isinf, values)),
            median=median(values),
            p99=values[ceil(P99 * len(values)) - 1],
            worst=worst,
            worst_of=name,
        )


Spreads = Mapping[str, Spread]
"""By the number's key in `summary.json`."""


def spreads(groups: Sequence[tuple[str, MetricGroup]]) -> dict[str, Spread]:
    """How the metrics that are shown so are distributed over several flows, or pairs of hosts.

    Args:
        groups: the metrics of each, with its name.
    """
    if not groups[1:]:
        return {}
    spread_of = {}
    for metric in type(groups[0][1]).shown_in(View.OVER_FLOWS):
        for quantity in metric.quantities:
            numbers = [
                (float(number), name)
                for name, group in groups
                if (number := quantity.of(group)) is not None
            ]
            if numbers:
                spread_of[quantity.key] = Spread.of(numbers, least_is_worst=metric.combine is least)
    return spread_of


FEW = 2
"""Up to this number each is shown: a distribution would tell nothing more."""


def worth_showing(found: Spreads) -> bool:
    """Whether people see how metrics are distributed: there are more than a few flows or pairs."""
    return any(spread.count > FEW for spread in found.values())


def shown_spreads(
    group: type[MetricGroup], found: Spreads
) -> Iterator[tuple[Metric, list[str], str]]:
    """For each metric: median, p99 and worst with their unit; of which, or how many never."""
    for metric in group.shown_in(View.OVER_FLOWS):
        quantity = metric.compared_quantity
        spread = found.get(quantity.key)
        if spread is None:
            continue
        numbers = [quantity.unit.show(n) for n in (spread.median, spread.p99, spread.worst)]
        remark = spread.worst_of
        if spread.never:
            remark = f"{spread.never} of {spread.count} {metric.never}"
        yield metric, numbers, remark
