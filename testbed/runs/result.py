"""A finished run: verdict, metrics, tables and figures."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Self

from testbed.model.fabric.addressing import path_of_ev
from testbed.model.flows import flows_recorded
from testbed.model.run_files.content import FlowRecord
from testbed.model.run_files.layout import MANIFEST, REPORT, SUMMARY
from testbed.model.scenario import Scenario
from testbed.model.summary import State, Summary
from testbed.model.summary.scopes import SCOPES

if TYPE_CHECKING:
    import polars as pl

    from testbed.results.analysis.fault_metrics import FlowTables
    from testbed.results.run_data import RunData


@dataclass(frozen=True)
class Figure:
    """A figure of a run; a notebook displays it.

    Attributes:
        name: such as `goodput`.
        title: what it shows.
        caption: what to look for.
        svg: the file, with text that can be searched.
        png: the same as pixels.
    """

    name: str
    title: str
    caption: str
    svg: Path
    png: Path

    def _repr_svg_(self) -> str:
        return self.svg.read_text(encoding="utf-8")


class Figures(Mapping[str, Figure]):
    """The figures of a run by name; a notebook displays all of them, with their captions."""

    def __init__(self, figures: Mapping[str, Figure]) -> None:
        self._figures = dict(figures)

    def __getitem__(self, name: str) -> Figure:
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in the order of the report."""
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    def __repr__(self) -> str:
        return f"Figures({', '.join(self)})"

    def _repr_html_(self) -> str:
        return "".join(
            f"<figure>{_inline(figure.svg)}<figcaption><b>{escape(figure.title)}</b> "
            f"{escape(figure.caption)}</figcaption></figure>"
            for figure in self.values()
        )


@dataclass(frozen=True)
class Result:
    """The result of a finished run; it reads the run's directory when it is asked."""

    directory: Path

    @classmethod
    def of(cls, directory: Path, summary: Summary) -> Self:
        result = cls(directory)
        vars(result)["summary"] = summary
        return result

    @cached_property
    def summary(self) -> Summary:
        """Every metric, as in `summary.json` (docs/metrics.md)."""
        text = (self.directory / SUMMARY).read_text(encoding="utf-8")
        return Summary.model_validate_json(text)

    @property
    def seconds(self) -> float:
        """How long it took to make it, from its manifest to its summary."""
        first, last = (self.directory / name for name in (MANIFEST, SUMMARY))
        return last.stat().st_mtime - first.stat().st_mtime

    @cached_property
    def data(self) -> "RunData":
        """All that it recorded, as the analysis reads it."""
        from testbed.results.run_data import load_run  # Polars starts threads

        return load_run(self.directory)

    @cached_property
    def flows(self) -> "tuple[FlowTables, ...]":
        """The records of its flows, in order."""
        from testbed.results.analysis.metrics import flow_tables  # as above

        return flow_tables(self.data)

    @property
    def scenario(self) -> Scenario:
        """What was run, with its topology."""
        return self.data.scenario

    @property
    def seed(self) -> int:
        """The seed of its random choices."""
        return self.scenario.seed

    @property
    def simulated(self) -> bool:
        """Whether it took place in virtual time."""
        return self.data.simulated

    @property
    def verdict(self) -> State:
        """Whether its figures can be trusted: `trusted`, `degraded` or `invalid`."""
        return self.summary.verdict

    @property
    def trusted(self) -> bool:
        """Whether the verdict is `trusted`."""
        return self.verdict == "trusted"

    @cached_property
    def metrics(self) -> "pl.DataFrame":
        """Every number of the summary, a row each.

        Columns: `scope` (a key of `expect:`, such as run, flows or faults), `of` (which one),
        `metric`, `unit`, `value` (null: not measured; inf: it never happened).
        """
        import polars as pl

        rows = [
            (key, of, quantity.key, quantity.unit.symbol, _number(quantity.of(group)))
            for key, scope in SCOPES.items()
            for of, group in scope.found(self.summary)
            for quantity in type(group).quantities()
        ]
        columns = {
            name: pl.Float64 if name == "value" else pl.String
            for name in ("scope", "of", "metric", "unit", "value")
        }
        return pl.DataFrame(rows, schema=columns, orient="row")

    @cached_property
    def tables(self) -> Mapping[str, "pl.DataFrame"]:
        """The records by name, such as `arrivals` and `losses`; time `t` in seconds of the run.

        Tables with the column `ev` have its `path` too, such as `p0/t1_2`.
        """
        data = self.data
        return {
            table.name: with_paths(data.scenario, frame, data.run.flows)
            if {"ev", "flow"} <= {*frame.columns}
            else frame
            for table, frame in data.tables.items()
        }

    @cached_property
    def figures(self) -> Figures:
        """The figures of the run; they are drawn when they are first asked for."""
        from testbed.results.report.figures import draw_all

        data = self.data
        drawn = draw_all(data, self.flows, self.summary, svg=True)
        return Figures(
            {
                picture.stem: Figure(
                    picture.stem,
                    picture.title,
                    picture.caption,
                    data.figures / f"{picture.stem}.svg",
                    data.figures / f"{picture.stem}.png",
                )
                for picture in drawn
            }
        )

    def report(self) -> Path:
        """Write `report.html` into the run's directory; returns its path."""
        from testbed.results.analyse import analyse

        analyse(self.directory, drawn=True)
        return self.directory / REPORT

    def __repr__(self) -> str:
        """The run's name and verdict."""
        return f"Result({self.directory}, {self.verdict})"

    def _repr_html_(self) -> str:
        summary = self.summary
        reasons = f": {escape('; '.join(summary.reasons))}" if summary.reasons else ""
        return (
            f"<p><b>{escape(summary.scenario)}</b>, seed {self.seed}, "
            f"{'simulated' if self.simulated else 'emulated'}: <b>{self.verdict}</b>{reasons}</p>"
            f"{shown(self.metrics)}"
        )


def shown(metrics: "pl.DataFrame") -> str:
    """The metrics of faults and flows as an HTML table, those that were measured."""
    measured = metrics.filter(metrics["value"].is_not_null() & (metrics["scope"] == "faults"))
    if measured.is_empty():
        measured = metrics.filter(metrics["value"].is_not_null() & (metrics["scope"] == "flows"))
    rows = "".join(
        f"<tr><td>{escape(of)}</td><td>{escape(name)}</td><td>{value:.4g} {escape(unit)}</td></tr>"
        for _, of, name, unit, value in measured.iter_rows()
    )
    return f"<table><tr><th>of</th><th>metric</th><th>value</th></tr>{rows}</table>"


def _inline(svg: Path) -> str:
    """The drawing in a file as a part of HTML, without the head of an XML file."""
    text = svg.read_text(encoding="utf-8")
    return text[text.index("<svg") :]


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def with_paths(
    scenario: Scenario, frame: "pl.DataFrame", recorded: Iterable[FlowRecord] = ()
) -> "pl.DataFrame":
    """A table with the column `path`, from its columns `flow` and `ev`.

    Of programs only the records know the flows.
    """
    import polars as pl

    flows = {flow.number: flow for flow in flows_recorded(scenario, recorded)}
    pairs = frame.select("flow", "ev").unique().rows()
    names = pl.DataFrame(
        [
            (number, ev, path_of_ev(scenario.topology, flow.src, flow.dst, ev).name)
            for number, ev in pairs
            if (flow := flows.get(number)) is not None
        ],
        schema={"flow": frame.schema["flow"], "ev": frame.schema["ev"], "path": pl.String},
        orient="row",
    )
    return frame.join(names, on=["flow", "ev"], how="left", maintain_order="left")
