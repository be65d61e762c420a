"""Comparisons of many groups: figures that tell them apart, tables that fit a page, notes."""

import re
from dataclasses import replace
from io import StringIO
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from rich.console import Console

from testbed.cli.comparison import PAGE, print_comparison
from testbed.model.summary import Summary
from testbed.model.summary.unit import NEVER
from testbed.results.analyse import analyse
from testbed.results.analysis.estimates import difference
from testbed.results.comparison import Group, compare, group_of
from testbed.results.report.comparison_report import format_estimate, notes_on_never
from testbed.results.report.figures import style
from testbed.results.report.figures.comparison import (
    COLOURS,
    GROUPS_A_FIGURE,
    _curve,
    draw,
    draw_goodput,
    goodput_caption,
    look,
)
from tests.results.synthetic import Plan, generate

BETWEEN_IN = 0.08
"""What two panels leave free between them, at least."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    generate(directory, Plan())
    analyse(directory, drawn=False)
    return directory


def test_groups_stay_apart_in_colour_and_in_print() -> None:
    assert len(COLOURS) >= 12
    for one, other in combinations(COLOURS, 2):
        assert np.linalg.norm(np.subtract(to_rgb(one), to_rgb(other))) > 0.15, (one, other)
    looks = [look(i) for i in range(24)]
    for kinds in (("colour", "line"), ("colour", "mark"), ("line", "mark")):  # the last: in print
        assert len({tuple(getattr(each, kind) for kind in kinds) for each in looks}) == 24


def test_more_groups_than_looks_have_further_figures(run: Path, tmp_path: Path) -> None:
    """A figure of all would be as high as there are groups, and its lines could not be told."""
    groups = [group_of(f"g{i}", [run]) for i in range(GROUPS_A_FIGURE + 2)]
    drawings = draw(groups, compare(groups), tmp_path)
    stems = [drawing.stem for drawing in drawings]
    kinds = ["comparison-goodput", "comparison-figures", "comparison-faults"]
    assert stems == kinds + [f"{kind}-groups-{GROUPS_A_FIGURE + 1}" for kind in kinds]
    for stem in stems:
        names = {*re.findall(r">(g\d+)\b", (tmp_path / f"{stem}.svg").read_text())}
        shown = range(24, 26) if "groups" in stem else range(24)
        assert names == {f"g{i}" for i in shown}, stem


@pytest.mark.parametrize("name", ["_g", "transport.spray=reps,topology.queue=trim,evs="])
def test_titles_stay_within_their_panels_and_legends_name_every_group(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, Figure] = {}
    monkeypatch.setattr(style, "write", lambda figure, _, title: drawn.update({title: figure}))
    groups = [group_of(f"{name}{i}", [run]) for i in range(3)]
    draw(groups, compare(groups), tmp_path)
    titles = 0
    legends = {title: figure.legends for title, figure in drawn.items() if figure.legends}
    assert {*legends} == {"comparison-goodput", "comparison-faults"}
    assert all(len(legend.get_texts()) == 3 for (legend,) in legends.values())
    for figure in drawn.values():
        figure.draw_without_rendering()
        for axes in figure.axes:
            for text in axes.findobj(Text):
                if text.get_text() and text.get_text() == axes.get_title("left"):
                    titles += 1
                    room = axes.get_window_extent().x1 + figure.dpi * BETWEEN_IN
                    assert text.get_window_extent().x1 <= room, text.get_text()
    assert titles >= len(compare(groups))


def test_the_time_with_faults_is_shaded(run: Path) -> None:
    group = group_of("x", [run])
    (summary,) = group.summaries
    axes = Figure().subplots()
    draw_goodput(axes, [group])
    (span,) = axes.patches
    begin_s, end_s = (
        min(fault.effective_s or 0.0 for fault in summary.faults),
        max(fault.healed_s or 0.0 for fault in summary.faults),
    )
    healed_rtts = (end_s - begin_s) * 1e6 / summary.base_rtt_us
    assert isinstance(span, Rectangle)
    assert span.get_x() == 0
    assert span.get_width() == pytest.approx(healed_rtts)
    assert goodput_caption([group]).endswith("until the last is healed.")
    calm = replace(group, summaries=(summary.model_copy(update={"faults": ()}),))
    assert "Shaded" not in goodput_caption([calm])


def test_a_curve_goes_on_until_the_fault_is_healed(run: Path) -> None:
    (group,) = [group_of("x", [run])]
    (summary,) = group.summaries
    rtt_s = summary.base_rtt_us / 1e6
    (first, *_) = summary.faults
    assert first.effective_s is not None
    for after_rtt in (5.0, 40.0):
        content = summary.model_dump(mode="json")
        healed = {"healed_s": first.effective_s + after_rtt * rtt_s}
        content["faults"] = [content["faults"][0] | healed]
        changed = Summary.model_validate(content)
        times, _ = _curve(run, changed)
        ends = (summary.duration_s - first.effective_s) / rtt_s
        assert times[-1] >= min(max(25.0, after_rtt + 10.0), ends) - 1.0


def _printed(groups: list[Group]) -> str:
    out = StringIO()
    console = Console(file=out, width=1000, highlight=False, markup=False)
    print_comparison(groups, compare(groups), console)
    return out.getvalue()


def test_tables_of_many_groups_fit_a_page(run: Path) -> None:
    groups = [
        group_of(f"transport.evs={i}, workload.message_size=64 KiB, timeline[0].at=1 s", [run])
        for i in range(12)
    ]
    printed = _printed(groups)
    table = [line for line in printed.splitlines() if line[:1] in "│┃├└┏┡"]
    metrics = [line for line in table if "│ 1 of 1" in line or "of runs" in line]
    assert max(map(len, metrics)) <= PAGE + 10
    assert printed.count("goodput of all flows") > 1
    for i in range(12):
        assert f"transport.evs={i}," in printed


def test_why_something_never_happened_is_said(run: Path) -> None:
    summary = group_of("x", [run]).summaries[0]
    remarks = [r for fault in summary.faults for r in summary.remarks_on_never(fault)]
    other = [r for fault in summary.faults for r in summary.remarks_on(fault)]
    assert {*remarks} <= {*other}
    groups = [Group(name, (run,), (_never(summary),)) for name in ("one", "two")]
    (note,) = notes_on_never(groups)
    assert "not all of its EVs were in use again before the run ended" in note
    assert note.endswith("(in 2 of 2: one; two)")
    assert note in _printed(groups)


def _never(summary: Summary) -> Summary:
    """The same with a fault whose EVs did not all return."""
    content = summary.model_dump(mode="json")
    fault = content["faults"][0]
    fault |= {"healed_s": fault["effective_s"] + 1}
    fault |= {key: "never" for key in fault if key.startswith("return_last_")}
    content["faults"] = [fault]
    return Summary.model_validate(content)


def test_what_rounding_has_left_is_no_figure(run: Path) -> None:
    assert format_estimate(difference([0.1 + 0.2] * 6, [0.3] * 6), signed=True) == "+0"
    assert not difference([0.1 + 0.2] * 6, [0.3] * 6).differs
    (summary,) = group_of("x", [run]).summaries
    content = summary.model_dump(mode="json")
    for flow in content["flows"]:
        flow["ideal_fraction"] = 1.24e-16
    row = next(
        row
        for row in compare([Group("x", (run,), (Summary.model_validate(content),))])
        if row.metric == "slowest flow, of ideal split"
    )
    assert format_estimate(row.cells[0].value) == "0"
    assert difference([NEVER], [1.0]).median == NEVER


def test_operations_are_compared(run: Path) -> None:
    (summary,) = group_of("x", [run]).summaries
    times = {
        f"{name}_{form}": value
        for name, value in (("median", 1.0), ("p99", 2.0), ("max", 3.0))
        for form in ("ms", "rtt", "real_us")
    }
    operation = {"kind": "allreduce", "hosts": 8, "bytes": 8, "count": 3, **times}
    operation |= {"begun": 3, "unfinished": 0}
    content = summary.model_dump(mode="json")
    content["operations"] = [{**operation, "algbw_bps": 1e6, "busbw_bps": 2e6}]
    with_them = Group("x", (run,), (Summary.model_validate(content),))
    rows = {row.heading: row.cells for row in compare([with_them, Group("y", (run,), (summary,))])}
    medians = {
        heading: cells[0].value.median
        for heading, cells in rows.items()
        if heading.startswith("allreduce") and cells[0].value is not None
    }
    assert medians == {
        "allreduce: completion, median (RTT)": 1.0,
        "allreduce: completion, p99 (RTT)": 2.0,
        "allreduce: longest completion (RTT)": 3.0,
        "allreduce: bus bandwidth (Mbit/s)": 2.0,
        "allreduce: begun": 3.0,
        "allreduce: finished": 3.0,
        "allreduce: unfinished": 0.0,
    }
    assert rows["allreduce: bus bandwidth (Mbit/s)"][1].basis == "0 of 1"
