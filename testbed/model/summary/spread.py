"""How a metric is distributed over flows: what the worst of many flows hides."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, isinf
from statistics import median
from typing import Self

from pydantic import BaseModel, ConfigDict

from testbed.model.summary.metric import Metric, MetricGroup, View, least
from testbed.model.summary.unit import MaybeNever

P99 = 0.99


class Spread(BaseModel):
    """How one number is distributed over flows.

    Attributes:
        flows: the number of flows that have a value.
        never: how many of these values are NEVER.
        median: the median; NEVER is more than any number.
        p99: 99% of the flows are no worse.
        worst: the worst.
        worst_flow: the flow with the worst, as `h0 -> h4`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    flows: int
    never: int
    median: MaybeNever
    p99: MaybeNever
    worst: MaybeNever
    worst_flow: str

    @classmethod
    def of(cls, numbers: Sequence[tuple[float, str]], *, least_is_worst: bool) -> Self:
        """Of one number or more, each with the name of its flow."""
        ordered = sorted(numbers, reverse=least_is_worst, key=lambda item: item[0])
        values = [number for number, _ in ordered]
        worst, flow = ordered[-1]
        return cls(
            flows=len(values),
            never=sum(map(isinf, values)),
            median=median(values),
            p99=values[ceil(P99 * len(values)) - 1],
            worst=worst,
            worst_flow=flow,
        )


Spreads = Mapping[str, Spread]
"""By the number's key in `summary.json`."""


def spreads(groups: Sequence[tuple[str, MetricGroup]]) -> dict[str, Spread]:
    """How the metrics of flows that are shown so are distributed, if there are several flows.

    Args:
        groups: the metrics of each flow, with the flow's name.
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
"""Up to this number of flows each is shown: a distribution would tell nothing more."""


def worth_showing(over_flows: Spreads) -> bool:
    """Whether people see how metrics are distributed over flows: there are more than a few."""
    return any(spread.flows > FEW for spread in over_flows.values())


def shown_spreads(
    group: type[MetricGroup], over_flows: Spreads
) -> Iterator[tuple[Metric, list[str], str]]:
    """For each metric: median, p99 and worst with their unit; the flow, and how many never did."""
    for metric in group.shown_in(View.OVER_FLOWS):
        quantity = metric.compared_quantity
        spread = over_flows.get(quantity.key)
        if spread is None:
            continue
        numbers = [quantity.unit.show(n) for n in (spread.median, spread.p99, spread.worst)]
        remark = spread.worst_flow
        if spread.never:
            remark = f"{spread.never} of {spread.flows} {metric.never}"
        yield metric, numbers, remark
