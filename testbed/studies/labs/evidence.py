"""A student's runs as checks see them: the figures that answers are compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.model.errors import InputError, RunFailedError
from testbed.model.fabric.topology import Topology
from testbed.model.run_files.layout import SUMMARY
from testbed.model.summary import Summary
from testbed.model.summary.metric import Quantity
from testbed.model.summary.scopes import SCOPES
from testbed.results.records import TABLE_OF_NAME
from testbed.rights import reading_for
from testbed.runs.result import with_paths
from testbed.studies.labs.assignment import Assignment
from testbed.studies.labs.lab import StudentFigure
from testbed.studies.labs.quantities import factor, show_quantity
from testbed.studies.labs.students import may_read

if TYPE_CHECKING:
    import polars as pl

    from testbed.results.run_data import RunData


@dataclass
class Evidence:
    """What a student's runs recorded.

    Attributes:
        assignment: the lab as the student has it.
        runs: the directory of each run that counts, by the run's name.
    """

    assignment: Assignment
    runs: Mapping[str, Path]
    _data: dict[str, "RunData"] = field(default_factory=dict)
    _summaries: dict[str, Summary] = field(default_factory=dict)

    @property
    def drawn(self) -> Mapping[str, Any]:
        """What the student's seed has drawn."""
        return self.assignment.drawn

    def topology(self, run: str) -> Topology:
        return self.assignment.scenario(run).topology

    def data(self, run: str) -> "RunData":
        from testbed.results.run_data import load_run  # noqa: PLC0415 - it takes long

        if run not in self._data:
            try:
                with reading_for(self.runs[run]), may_read():
                    data = load_run(self.runs[run])
                    [*data.tables.values()]  # read now, with the student's rights
                    self._data[run] = data
            except InputError as error:
                raise InputError([replace(p, remedy=_again(run)) for p in error.problems]) from None
        return self._data[run]

    def frame(self, run: str, table: str) -> "pl.DataFrame":
        """A table of a run, with the path of each EV."""
        data = self.data(run)
        frame = data.tables[TABLE_OF_NAME[table]]
        return with_paths(data.scenario, frame, data.run.flows) if "ev" in frame.columns else frame

    def summary(self, run: str) -> Summary:
        if run not in self._summaries:
            file = self.runs[run] / SUMMARY
            try:
                with reading_for(file.parent):
                    text = file.read_text(encoding="utf-8")
                self._summaries[run] = Summary.model_validate_json(text)
            except (OSError, ValueError):  # pydantic's error is one, too
                expected = "the metrics of a run"
                raise InputError.of(str(file), "a damaged file", expected, _again(run)) from None
        return self._summaries[run]

    def value(self, figure: StudentFigure, unit: str = "") -> Any:
        """A figure: a metric as a number in a unit, or what a function of `figures.py` returns.

        Raises:
            RunFailedError: the run has no such figure.
        """
        if not figure.is_metric:
            result = self._computed(figure.name)
            return tuple(result) if isinstance(result, list | set) else result
        scope, _, key = figure.name.partition(".")
        number = SCOPES[scope].number(self.summary(figure.run), key)
        if number is None:
            raise RunFailedError(f"the run {figure.run} has no {figure.name}: make it again")
        return number * _scale(SCOPES[scope].quantities[key], unit)

    def _computed(self, name: str) -> Any:
        """What a function of `figures.py` returns.

        Raises:
            RunFailedError: it cannot be computed, since the runs did not record what it needs.
        """
        import polars as pl  # noqa: PLC0415 - it takes long

        try:
            return getattr(self.assignment.directory.functions, name)(self)
        except (
            pl.exceptions.PolarsError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            runs = ", ".join(self.runs)
            shown = name.replace("_", " ")
            remedy = "make the run again; if your code made it, let it send on all paths"
            raise RunFailedError(
                f"the records of {runs} have no {shown}\n  remedy: {remedy}"
            ) from error

    def called(self, figure: StudentFigure) -> str:
        """A figure in words: `the figure stall_rtt of your run failure`, or as the lab says."""
        if figure.called:
            return self.assignment.text(figure.called)
        name = figure.name.rpartition(".")[2]
        if figure.is_metric:
            return f"the figure {name} of your run {figure.run}"
        runs = ", ".join(self.runs)
        return f"the figure {name.replace('_', ' ')} of your run{'s' * (len(self.runs) > 1)} {runs}"

    def show(self, figure: StudentFigure, unit: str = "") -> str:
        value = self.value(figure, unit)
        if figure.is_metric and not unit:
            scope, _, key = figure.name.partition(".")
            return SCOPES[scope].quantities[key].unit.show(value)
        if isinstance(value, int | float):
            return show_quantity(value, unit)
        return ", ".join(value) if isinstance(value, tuple) else str(value)


def _again(run: str) -> str:
    return f"make it again: testbed lab run {run}"


def canonical(value: Any, *, ordered: bool = True) -> Any:
    """A value as it is compared with an answer."""
    if isinstance(value, list | tuple | set | frozenset):
        names = tuple(str(name) for name in value)
        return names if ordered else tuple(sorted(set(names)))
    return str(value) if isinstance(value, IPv6Address) else value


def _scale(quantity: Quantity, unit: str) -> float:
    """What a metric's number is multiplied by to be in a unit."""
    return factor(quantity.unit.symbol) / factor(unit) if unit else 1.0
