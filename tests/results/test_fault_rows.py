"""Faults in figures: named where they are few, a row each, or a row a kind where they are many."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from testbed.model.summary import FaultSummary, Summary
from testbed.results.analysis.metrics import flow_tables, summarise
from testbed.results.report.figures import ev_states, fault_rows, goodput
from testbed.results.report.figures.style import style, write
from testbed.results.run_data import load_run

from .synthetic import Failure, Plan, generate

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    directory = tmp_path_factory.mktemp("runs") / "run"
    generate(directory, Plan(duration=5.0))
    data = load_run(directory)
    return summarise(data, flow_tables(data))


def _with(summary: Summary, *kinds: str) -> Summary:
    (fault,) = summary.faults
    faults = [
        fault.model_copy(update={"index": i, "kind": kind, "effective_s": 1.0 + i})
        for i, kind in enumerate(kinds)
    ]
    return summary.model_copy(update={"faults": tuple(faults)})


def test_few_faults_need_no_rows(summary: Summary) -> None:
    assert fault_rows.rows(_with(summary, "cut", "cut")) == []
    assert fault_rows.origin(_with(summary)) == "the start"
    assert fault_rows.origin(summary) == "the fault"


def test_some_faults_have_a_row_each(summary: Summary) -> None:
    rows = fault_rows.rows(_with(summary, *["cut"] * 11, "loss"))
    assert [label for label, _ in rows] == [f"cut {summary.faults[0].target}"] * 11 + [
        f"loss {summary.faults[0].target}"
    ]
    assert [len(faults) for _, faults in rows] == [1] * 12


def test_many_faults_have_a_row_a_kind(summary: Summary) -> None:
    rows = fault_rows.rows(_with(summary, *["cut", "loss", "cut"] * 10, "flap"))
    assert [label for label, _ in rows] == ["cut, 20 times", "loss, 10 times", "flap, once"]
    assert [[fault.kind for fault in faults] for _, faults in rows] == [
        ["cut"] * 20,
        ["loss"] * 10,
        ["flap"],
    ]


def test_what_never_took_effect_is_in_no_row(summary: Summary) -> None:
    faults = _with(summary, *["cut"] * 3).faults
    never = faults[1].model_copy(update={"effective_s": None})
    run = summary.model_copy(update={"faults": (faults[0], never, faults[2])})
    assert fault_rows.rows(run) == []
    assert fault_rows.measured(run) == [faults[0], faults[2]]


def test_a_fault_of_many_links_is_called_by_the_first(summary: Summary) -> None:
    fault: FaultSummary = summary.faults[0].model_copy(update={"target": "p0_t1_0, p1_t1_0, p2"})
    assert fault_rows.name(fault) == "blackhole p0_t1_0 and 2 more"


def test_the_figures_of_a_run_name_its_rows(tmp_path: Path) -> None:
    failures = tuple(
        Failure(f"p{i % 4}_t0_0--p{i % 4}_t1_{i % 3}", at=1.0 + i / 2, until=1.8 + i / 2)
        for i in range(5)
    )
    run = tmp_path / "run"
    generate(run, Plan(duration=5.0, failures=failures, pairs=(("h0", "h4"),)))
    data = load_run(run)
    tables = flow_tables(data)
    summary = summarise(data, tables)
    file = tmp_path / "drawn.svg"
    with style():
        for drawn in (
            goodput.draw(data, tables, summary),
            ev_states.draw(data, tables[0], summary),
        ):
            assert drawn is not None
            write(drawn[0], file, "")
            root = ET.parse(file).getroot()  # noqa: S314 - our own
            text = ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]
            assert [text.count(f"blackhole {failure.target}") for failure in failures] == [1] * 5
            assert "base RTTs from the first fault" in text


def test_a_flow_that_a_fault_did_not_meet_is_drawn_beside_those_that_it_did(tmp_path: Path) -> None:
    """As one of a program that began after it."""
    generate(tmp_path / "run", Plan(duration=5.0))
    data = load_run(tmp_path / "run")
    tables = flow_tables(data)
    summary = summarise(data, tables)
    (fault,) = summary.faults
    assert len(fault.flows) > 1
    met = fault.model_copy(update={"flows": fault.flows[:1]})
    with style():
        drawing = goodput.draw(data, tables, summary.model_copy(update={"faults": (met,)}))
    assert drawing is not None
