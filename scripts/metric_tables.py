"""Write the tables of docs/metrics.md from the declarations of the metrics.

A table stands between `<!-- metrics of FlowSummary -->` and `<!-- end -->`.

    python scripts/metric_tables.py
"""

import re
from pathlib import Path

from testbed.model import summary
from testbed.model.summary import Metric, MetricGroup

DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"
_TABLE = re.compile(r"(<!-- metrics of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(document: str) -> str:
    """A document with the tables that its comments ask for."""
    return _TABLE.sub(
        lambda match: match[1] + table(getattr(summary, match[2])) + match[3], document
    )


def table(group: type[MetricGroup]) -> str:
    """A table of a group's metrics: keys of `summary.json`, unit, definition."""
    own = [metric for metric in group.metrics() if metric.name in group.__annotations__]
    rows = "".join(
        f"| {_keys(metric)} | {_unit(metric)} | {metric.definition} |\n" for metric in own
    )
    return f"| key | unit | definition |\n| --- | --- | --- |\n{rows}"


def _keys(metric: Metric) -> str:
    first, *others = (f"`{quantity.key}`" for quantity in metric.quantities)
    suffixes = [f"`{key.strip('`').removeprefix(metric.name)}`" for key in others]
    return ", ".join((first, *suffixes))


def _unit(metric: Metric) -> str:
    return ", ".join(quantity.unit.symbol for quantity in metric.quantities)


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
