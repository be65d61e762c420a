"""Rows whose runs and hypotheses are those of studies (`scenarios/paper/studies`).

`testbed study` makes such a study as well. Here its runs are also emulated, and a hypothesis holds
if the median is within its bounds, as of all rows.

The fabrics of rows for RoCE are with priority flow control, which only the simulator has, and
without it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import Path as FabricPath
from testbed.model.fabric.topology import Topology
from testbed.model.files.catalog import SCENARIOS
from testbed.model.files.topologies import load_topology
from testbed.model.summary.scopes import number_of
from testbed.model.summary.unit import BYTES, RTT, SHARE, US, Unit
from testbed.model.transport import Transport
from testbed.runs.job import Form
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.figure import RATIO, Check, PaperFigure, Variant, shown
from testbed.studies.study.file import Hypothesis, LoadedStudy, Shown, load_study
from testbed.studies.study.own_metrics import OwnMetric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

XOFF_BDP = 1.0
"""How much of what came over one link may wait in a switch until that link is paused, in BDP."""

PFC: Mapping[str, Any] = {
    "base": "clos-1plane-roce",
    "name": "clos-16host-pfc",
    "description": "",
    "t0_per_plane": 4,
    "pause": {"xoff": f"{XOFF_BDP:g} BDP", "xon": "0.5 BDP"},
}
"""The paper's cluster D for RoCE: 16 hosts in four racks; a full queue pauses who fills it."""

ONLY_SIMULATED: Mapping[Form, str] = {
    "emulated": "Linux has no priority flow control, which holds RoCE's senders back"
}


def without_pause(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fabric of a scenario without flow control: its queues hold all that is outstanding."""
    topology = {**data["topology"], "name": "clos-16host-roce"}
    del topology["pause"]
    return {"topology": topology}


def paths_in_use(
    data: Mapping[str, Any], src: str, dst: str, seed: int
) -> tuple[Topology, list[FabricPath]]:
    """The paths of a flow's active EVs at the start, and the topology that they lead through.

    Args:
        data: the content of a scenario's file, with the topology as a name.
        src: the sending host.
        dst: the receiving host.
        seed: the run's seed.
    """
    topology = load_topology(data["topology"])
    transport: Transport = TypeAdapter[Transport](Transport).validate_python(data["transport"])
    nodes = topology.nodes[src], topology.nodes[dst]
    evs = transport.choose_evs(topology, *nodes, lane=0, seed=seed)
    return topology, [ev.path for ev in evs if ev.active]


STUDIES = SCENARIOS / "paper" / "studies"

_FORMS: Mapping[Unit, str] = {
    BYTES: "{:.0f} B",
    RTT: "{:.1f} RTT",
    SHARE: "{:.1%}",
    US: "{:.2f} us",
}
"""How values are shown; those of other units as whole numbers."""

_NONE: Mapping[str, Any] = MappingProxyType({})


def row(
    number: str,
    study: str,
    draw: Callable[..., "Figure"],
    *,
    scenarios: Sequence[str] = (),
    runs: Mapping[str, Mapping[str, Any]] = _NONE,
    forms: Mapping[str, str] = _NONE,
    **options: Any,
) -> PaperFigure:
    """A row of the runs of a study and its hypotheses about them.

    Args:
        number: the row's.
        study: the name of the study's file, without suffix.
        draw: draws the runs.
        scenarios: those of the study that the row is about; none: all.
        runs: more fields of their variants, by the names of the runs.
        forms: how values of metrics are shown, if not as usual for their unit.
        options: more fields of the row.
    """
    made = _Row(study, tuple(scenarios or _loaded(study).content.scenarios), forms)
    return PaperFigure(number, (*made.variants(runs),), made.measure, draw, **options)


@cache
def _loaded(study: str) -> LoadedStudy:
    return load_study(STUDIES / f"{study}.yaml")


@cache
def _functions(study: str) -> Mapping[str, Callable[[Result], Any]]:
    """The functions that the study has as metrics, by their names there."""
    return {name: OwnMetric.of(code).function for name, code in _loaded(study).functions.items()}


@dataclass(frozen=True, slots=True)
class _Row:
    """A part of a study, or all of it."""

    study: str
    scenarios: tuple[str, ...]
    forms: Mapping[str, str]

    def name(self, scenario: str, case: str) -> str:
        """The name of a run: that of the scenario, and of the case if there are several."""
        return f"{scenario}-{case}" if len(_loaded(self.study).content.cases) > 1 else scenario

    def variants(self, more: Mapping[str, Mapping[str, Any]]) -> Iterator[Variant]:
        """The runs; the study sets whole keys of the first level."""
        content = _loaded(self.study).content
        for scenario in self.scenarios:
            studied = content.scenarios[scenario]
            for case, keys in content.cases.items():
                name = self.name(scenario, case)
                changes = {**studied.set, **keys}
                yield Variant(name, Path(studied.scenario).stem, changes, **more.get(name, {}))

    def measure(self, runs: Results) -> tuple[Check, ...]:
        """Check the hypotheses about these runs, then show metrics that none is about."""
        content = _loaded(self.study).content
        judged = (
            check
            for hypothesis in content.expect
            for scenario in self.scenarios
            if scenario in (hypothesis.scenario or self.scenarios)
            for check in self._judged(hypothesis, scenario, runs)
        )
        bounded = {hypothesis.metric for hypothesis in content.expect}
        others = (
            shown(metric.name, self._number(metric.metric, runs[name]), self._form(metric))
            for metric in content.metrics
            if metric.metric not in bounded
            for cell in content.cells
            if (name := self.name(*cell)) in runs
        )
        return (*judged, *others)

    def _judged(self, hypothesis: Hypothesis, scenario: str, runs: Results) -> Iterator[Check]:
        """The check of a hypothesis; none if its runs are not made in this form."""
        metric, bound = hypothesis.metric, hypothesis.bound
        cells = _loaded(self.study).content.compared(hypothesis, scenario)
        names = [self.name(*cell) for cell in cells]
        if not {*names} <= {*runs}:
            return
        value, *others = (self._number(metric, runs[name]) for name in names)
        form = self._form(Shown(metric=metric))
        if others:
            value /= others[0]
            form = RATIO if 1 in {bound.at_least, bound.at_most} else "{:.1%}"
        low = -inf if bound.at_least is None else bound.at_least
        high = inf if bound.at_most is None else bound.at_most
        yield Check(str(hypothesis), (value,), low, high, form)

    def _form(self, metric: Shown) -> str:
        return self.forms.get(metric.function or metric.metric, _FORMS.get(metric.unit, "{:.0f}"))

    def _number(self, metric: str, run: Result) -> float:
        function = _functions(self.study).get(metric)
        number = number_of(run.summary, metric) if function is None else function(run)
        if number is None:
            raise RunFailedError(f"{metric} was not measured")
        return float(number)
