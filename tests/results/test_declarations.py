"""A metric is declared once: whatever shows, compares, expects or documents metrics follows."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from pydantic.fields import FieldInfo
from rich.console import Console

from testbed.cli.summary import show
from testbed.installation import PROJECT
from testbed.live.forks import FORKS
from testbed.live.stream.writer import STREAM
from testbed.model.errors import InputError
from testbed.model.faults.record import FAULTS, FaultRecord
from testbed.model.files.scenarios import load_scenario
from testbed.model.json_schema import scenario_schema, summary_schema
from testbed.model.run_files import layout
from testbed.model.summary import (
    FaultEffect,
    FaultSummary,
    FlowFault,
    Metric,
    Summary,
    Time,
    View,
)
from testbed.model.summary.metric import (
    Comparison,
    _forms_of,
    _metrics_of,
    _names_of,
    _quantities_of,
    _strings_below_fields,
)
from testbed.model.summary.scopes import SCOPES
from testbed.results.analyse import analyse
from testbed.results.analysis.fault_metrics import FaultMetrics
from testbed.results.comparison import compare, group_of
from testbed.results.run_directory import RunDirectory
from tests.modules import SCRIPTS, module_at

from .synthetic import Plan, generate

TOY_S = 0.262
"""What the toy metric comes to: two base RTTs."""

TOY = Metric(
    title="rolling of the toy",
    views=View.REPORT | View.TERMINAL | View.FLOWS_OF_FAULT,
    compared=Comparison(),
)
GROUPS = (FaultEffect, FlowFault, FaultSummary, Summary)


def declare(field: FieldInfo | None) -> None:
    """Do what a line of code would: declare `toy` in `FaultEffect`; None takes it back."""
    for group in GROUPS:
        if field is None:
            group.__pydantic_fields__.pop("toy", None)
        elif group is not Summary:
            group.__pydantic_fields__["toy"] = field
    for group in GROUPS:
        group.model_rebuild(force=True)
    for known in (_metrics_of, _quantities_of, _names_of, _forms_of):
        known.cache_clear()


@pytest.fixture
def _toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kind: Any = Annotated[Time | None, TOY]
    field = FieldInfo.from_annotated_attribute(kind, None)
    monkeypatch.setitem(_strings_below_fields(FaultEffect), "toy", "How long the toy rolled.")
    monkeypatch.setattr(FaultMetrics, "toy", property(lambda _: TOY_S), raising=False)
    declare(field)
    yield
    declare(None)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of an analysed run that expects something of the toy metric."""
    directory = tmp_path / "run"
    generate(directory, replace(Plan(), duration=5.0))
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["scenario"]["expect"]["faults"] = {"toy_rtt": {"at_most": 1.5}}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    analyse(directory)
    return directory


@pytest.mark.usefixtures("_toy")
def test_a_toy_metric_appears_everywhere(run: Path) -> None:
    written = json.loads((run / "summary.json").read_text())
    forms = {"toy_ms": 262.0, "toy_rtt": 2.0, "toy_real_us": 26.2}
    for shown in (written["faults"][0], *written["faults"][0]["flows"]):
        assert {key: shown[key] for key in forms} == pytest.approx(forms)
    summary = Summary.model_validate(written)
    assert summary.model_dump(mode="json") == written

    report = (run / "report.html").read_text()
    for words in ("Rolling of the toy", "How long the toy rolled.", "262 ms", "26.2"):
        assert words in report

    terminal = StringIO()
    show(summary, RunDirectory(run), Console(file=terminal, width=200))
    (row,) = (line for line in terminal.getvalue().splitlines() if "rolling of the toy" in line)
    assert "262 ms" in row

    rows = {row.name: row for row in compare([group_of("runs", [run])])}
    name = f"{summary.faults[0].name}, rolling of the toy"
    value = rows[name].cells[0].value
    assert value is not None
    assert value.median == pytest.approx(2.0)
    assert rows[name].unit == "RTT"

    suite = ET.parse(run / "junit.xml").getroot()  # noqa: S314 - our own
    (case,) = (case for case in suite.iter("testcase") if "toy_rtt" in case.get("name", ""))
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message", "").startswith("2 at blackhole of")


@pytest.mark.usefixtures("_toy")
def test_a_toy_metric_is_known_to_schemas_and_may_be_expected(tmp_path: Path) -> None:
    for schema in (summary_schema()["$defs"]["FaultSummary"], scenario_schema()["$defs"]["Expect"]):
        properties = schema["properties"]
        properties = properties.get("faults", {}).get("properties", properties)
        assert properties["toy_rtt"]["description"].startswith("How long the toy rolled.")
    load_scenario(_expecting(tmp_path, "toy_rtt"))


def test_without_its_declaration_it_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the unknown metric toy_rtt"):
        load_scenario(_expecting(tmp_path, "toy_rtt"))


def _expecting(directory: Path, key: str) -> str:
    content = yaml.safe_load((PROJECT / "scenarios/link-failure.yaml").read_text())
    file = directory / "toy.yaml"
    file.write_text(yaml.dump({**content, "expect": {"faults": {key: {"at_most": 10}}}}))
    return str(file)


def test_the_schema_is_that_of_what_is_written(tmp_path: Path) -> None:
    generate(tmp_path / "run", replace(Plan(), duration=5.0))
    analyse(tmp_path / "run", drawn=False)
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    schema = summary_schema()
    assert set(written) == set(schema["required"])
    assert set(schema["properties"]) == set(written) | {"jobs", "nodes"}  # of several
    for key, group in (("flows", "FlowSummary"), ("faults", "FaultSummary")):
        assert set(written[key][0]) == set(schema["$defs"][group]["properties"])


def test_keys_that_are_unknown_or_missing_are_refused() -> None:
    fault: dict[str, Any] = {
        "index": 0,
        "kind": "cut",
        "target": "l",
        "places": (),
        "actuator": "link",
        "requested_s": 1.0,
        "proof": {},
        "flows_affected": 0,
        "flows": (),
    }
    assert FaultSummary.model_validate(fault).packets_lost == 0
    for wrong in (
        {"stall_rtts": 1.0},
        {"stall_rtt": 1.0},  # without its other forms
        {"requested_s": "soon"},
        {"flows_affected": 0.5},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong)).removesuffix("_rtt")):
            FaultSummary.model_validate(fault | wrong)
    del fault["requested_s"]
    with pytest.raises(ValueError, match="requested_s"):
        FaultSummary.model_validate(fault)


def test_the_tables_of_the_documentation_are_up_to_date() -> None:
    script = SCRIPTS / "metric_tables.py"
    document = (PROJECT / "docs/metrics.md").read_text()
    assert module_at(script).with_tables(document) == document, f"run: .venv/bin/python {script}"


def test_the_documentation_names_every_file_and_every_key_of_a_fault() -> None:
    document = (PROJECT / "docs/metrics.md").read_text()
    directory, _, rest = document.partition("## The run directory")[2].partition(
        "### `faults.jsonl`"
    )
    keys = {field.name for field in fields(FaultRecord)}
    assert keys <= {*re.findall(r"`([a-z_]+)", rest)}
    while_it_lasts = {layout.RAW, layout.START}
    names = {value for name, value in vars(layout).items() if name.isupper()} - while_it_lasts
    missing = {name for name in names | {FAULTS, STREAM, FORKS} if name not in directory}
    assert not missing


def test_every_scope_is_compared() -> None:
    """`expect:`, `Result.metrics` and `Sweep.frame` have all scopes; comparisons as well."""
    for key, scope in SCOPES.items():
        compared = [metric for group in scope.groups for metric in group.metrics()]
        assert any(metric.compared is not None for metric in compared), key
