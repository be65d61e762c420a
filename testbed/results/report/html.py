"""What the reports share: templates, pictures, and tables of metrics."""

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from testbed.model.summary import Metric, MetricGroup
from testbed.model.summary.metric import Quantity, View
from testbed.model.summary.unit import COUNT, MS, RATE, RTT, US

if TYPE_CHECKING:
    from testbed.results.report.figures.style import Drawing

DASH = "\N{EN DASH}"


def template(name: str, *packages: str, escaped: bool = True, **filters: Any) -> Template:
    """A template of these packages or of this one, in which a missing value is an error.

    What HTML shows is escaped; Markdown has signs of its own.
    """
    places = *packages, "testbed.results.report"
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in places]),
        autoescape=escaped,  # noqa: S701 - not of Markdown
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(name)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with the content of its file as a data URL: as SVG where it was drawn as such."""

    title: str
    caption: str
    source: str

    @classmethod
    def of(cls, drawing: "Drawing", figures: Path) -> "Picture":
        file, kind = figures / f"{drawing.stem}.svg", "svg+xml"
        if not file.exists():
            file, kind = file.with_suffix(".png"), "png"
        encoded = base64.b64encode(file.read_bytes()).decode()
        return cls(drawing.title, drawing.caption, f"data:image/{kind};base64,{encoded}")


def number(value: float | None, digits: int = 0) -> str:
    """A number with thin spaces between thousands; a dash for None."""
    return DASH if value is None else f"{value:,.{digits}f}".replace(",", "\u2009")


@dataclass(frozen=True, slots=True)
class TableCell:
    """A metric's value in a table: its main form, and its other forms in small print."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class MetricTables:
    """Headings and cells of the metrics that the report shows, for templates.

    Attributes:
        dilation: the run's; rates are shown at full speed, too.
    """

    dilation: float

    def headings(self, group: type[MetricGroup], view: View = View.REPORT) -> list[str]:
        return [metric.title for metric in group.shown_in(view)]

    def cells(self, group: MetricGroup, view: View = View.REPORT) -> list[TableCell]:
        return [self._cell(metric, group) for metric in group.shown_in(view)]

    def _cell(self, metric: Metric, group: MetricGroup) -> TableCell:
        main, *others = (_show(quantity, group) for quantity in metric.quantities)
        value = metric.quantities[0].of(group)
        if value is None:
            return TableCell(DASH)
        if metric.unit is RATE:
            others = [f"real {RATE.show(value * self.dilation)}"]
        return TableCell(main, ", ".join(others))

    def rows(self, group: MetricGroup) -> list[tuple[str, str, list[str]]]:
        """A row for each metric: title, definition, and forms.

        A time has three: emulated, in base RTTs, at full speed. Any other metric
        has one.
        """
        return [
            (metric.title, _definition(metric, group), _forms(metric, group))
            for metric in group.shown_in(View.REPORT)
        ]


_NULL = re.compile(r" ?\bNull: ([^.]*\.)")
"""The sentence of a definition that says what null in JSON means."""


def _definition(metric: Metric, group: MetricGroup) -> str:
    """A metric's definition for people; what a missing value means only where it is missing."""
    missing = metric.quantities[0].of(group) is None
    return _NULL.sub(f" {DASH}: \\1" if missing else "", metric.definition.replace("`", "")).strip()


_TIME_UNITS = (MS, RTT, US)
"""Units of times, in the order of the columns: emulated, base RTTs, at full speed."""


def _forms(metric: Metric, group: MetricGroup) -> list[str]:
    if metric.unit not in _TIME_UNITS:
        return [_show(metric.quantities[0], group)]
    quantities = {quantity.unit: quantity for quantity in metric.quantities}
    return [_show(quantities[unit], group) if unit in quantities else "" for unit in _TIME_UNITS]


def _show(quantity: Quantity, group: MetricGroup) -> str:
    value = quantity.of(group)
    if value is None:
        return DASH
    return number(value) if quantity.unit is COUNT else quantity.unit.show(value)
