"""Studies as a user makes them: by command and from Python; what they leave and refuse."""

import csv
import io
import json
import re
import subprocess
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import testbed
from testbed import installation
from testbed.model.errors import ExitStatus, InputError
from testbed.model.files.catalog import TOPOLOGIES
from testbed.model.summary.unit import NEVER
from testbed.results.analysis.estimates import Estimate
from testbed.results.comparison import Cell, Group, Row
from testbed.results.report.figures import style
from testbed.results.report.figures.comparison import Value, draw_values, look
from testbed.results.report.html import DASH
from testbed.runs.result import Result
from testbed.studies.study.figures import _legend
from testbed.studies.study.file import MOST_CASES, Hypothesis, Shown, load_study
from testbed.studies.study.inputs import inputs_of
from testbed.studies.study.judging import Answer, judged
from testbed.studies.study.own_metrics import OwnMetric
from testbed.studies.study.publishing import archive
from testbed.studies.study.tables import Table, as_latex, as_markdown, in_latex
from tests.cli.conftest import Call, call
from tests.judging import skip_without

__all__ = ["call"]

ROOT = Path(__file__).parents[2]

TINY = """\
name: tiny
topology: clos-tiny
duration: 300 ms
workload: {pairs: [[h0, h1]], message_size: 16 KiB}
"""

STUDY = """\
name: sprays
description: Two ways to spray, and one of our own.
seeds: [5, 6]
scenarios:
  plain: ./tiny.yaml
  50% & "few" EVs $_$: {scenario: ./tiny.yaml, set: {transport.evs: 4}}
cases:
  MRC: {}
  mine_1: {transport.spray: ./code/mine.py:Mine}
metrics:
  - {metric: flows.run_fraction, title: of what is attainable}
  - faults.stall_rtt
  - {metric: ./code/gauge.py:heard_count, title: answers}
  - ./code/gauge.py:worst_losses_count
expect:
  - {metric: flows.run_fraction, case: mine_1, at_least: 0.2}
  - {claim: mine loses, metric: run.bytes_lost, case: mine_1, scenario: plain, more_than: MRC}
  - {metric: ./code/gauge.py:heard_count, case: mine_1, scenario: [plain], at_least: 1}
"""

OWN = """\
from aside import turned

class Mine:
    def __init__(self, evs, seed):
        self.evs = [info.ev for info in evs]

    def pick(self, now_ns, flight, avoid):
        return turned(self.evs)[0]
"""

ASIDE = """\
def turned(evs):
    evs.append(evs.pop(0))
    return evs
"""


GAUGE = """\
from counting import rows

def heard_count(run):
    return rows(run, "arrivals")
"""

COUNTING = """\
def rows(run, table):
    return run.tables[table].height
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files of a study, in a directory of their own."""
    place = tmp_path / "idea"
    (place / "code").mkdir(parents=True)
    (place / "tiny.yaml").write_text(TINY)
    (place / "study.yaml").write_text(STUDY)
    (place / "code/mine.py").write_text(OWN)
    (place / "code/aside.py").write_text(ASIDE)
    page = (ROOT / "docs/studies.md").read_text()
    (of_page,) = re.findall(r"```python\n(def .*?)```", page, re.DOTALL)
    (place / "code/gauge.py").write_text(f"{GAUGE}\n{of_page}")
    (place / "code/counting.py").write_text(COUNTING)
    return place / "study.yaml"


Edit = Callable[[str, str], None]


@pytest.fixture
def edit(files: Path) -> Edit:
    """Replace a part of the study's file, which it has."""

    def edit(old: str, new: str) -> None:
        assert old in files.read_text()
        files.write_text(files.read_text().replace(old, new))

    return edit


@pytest.mark.simulated
@pytest.mark.usefixtures("files")
def test_a_study_from_its_file_to_its_archive(call: Call, tmp_path: Path) -> None:
    done = call("study", "idea/study.yaml", "--allow-code", "--archive", "all.tar.gz")
    assert done.status == ExitStatus.FAILED, done.err  # `mine loses` is refuted
    made = tmp_path / "results/study-sprays"

    answers = json.loads((made / "study.json").read_text())["hypotheses"]
    assert [(each["scenario"], each["answer"]) for each in answers] == [
        ("plain", "supported"),
        ('50% & "few" EVs $_$', "supported"),
        ("plain", "refuted"),
        ("plain", "supported"),
    ]
    junit = ET.parse(made / "junit.xml").getroot()  # noqa: S314 - our own
    assert (junit.get("failures"), junit.get("errors")) == ("1", "0")

    estimates = list(csv.DictReader((made / "tables/estimates.csv").open()))
    assert len(estimates) == 4 * 2 * 2
    assert {each["title"] for each in estimates if "gauge" in each["metric"]} == {
        "answers",
        "worst losses",
    }
    assert {each["interval"] for each in estimates if each["median"]} == {"range of 2"}
    runs = list(csv.DictReader((made / "tables/runs.csv").open()))
    assert {(each["case"], each["seed"]) for each in runs} == {
        (case, seed) for case in ("MRC", "mine_1") for seed in "56"
    }
    assert all(float(each["./code/gauge.py:heard_count"]) > 1 for each in runs)
    assert r"50\% \& ''few'' EVs \\ \$\_\$" in (made / "tables/flows-run_fraction.tex").read_text()
    latex = (made / "study.tex").read_text()
    for caption in (latex.replace("-{}-", "--"), (made / "README.md").read_text()):
        command = "testbed study study.yaml --allow-code"
        for said in ("8 simulated runs", "seeds 5 to 6", command, "commit"):
            assert said in caption
    for stem in ("flows-run_fraction", "faults-stall_rtt", "gauge-heard_count", "goodput-plain"):
        assert f"figures/{stem}.pdf" in latex
        assert b"/Type3" not in (made / f"figures/{stem}.pdf").read_bytes()
        svg = (made / f"figures/{stem}.svg").read_text()
        (points,) = re.findall(r'<svg[^>]* width="([0-9.]+)pt"', svg)
        assert float(points) * 25.4 / 72 == pytest.approx(85)

    archive = (tmp_path / "all.tar.gz").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        names = packed.getnames()
        for member in packed:
            content = packed.extractfile(member)
            assert content is not None
            assert str(tmp_path).encode() not in content.read()
            assert (member.uname, member.uid, member.mtime) == ("", 0, 0)
        packed.extractall(tmp_path / "stranger")  # noqa: S202 - our own
    for name in (
        "inputs/study.yaml",
        "inputs/tiny.yaml",
        "inputs/code/mine.py",
        "inputs/code/aside.py",
        "inputs/code/gauge.py",
        "inputs/code/counting.py",
    ):
        assert f"sprays/{name}" in names
    assert sum(name.endswith("/summary.json") for name in names) == 8
    assert "sprays/sweep.json" not in names  # it would be continued, without the runs' records

    (command,) = re.findall(r"^testbed (study .*)$", (made / "README.md").read_text(), re.MULTILINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "stranger/sprays")
        called = call(*command.split(), "--json")
        assert called.status == ExitStatus.FAILED
        assert json.loads(called.out)["study"]["hypotheses"] == answers
        called = call("compare", "plain--MRC", "plain--mine_1")
        assert called.status == ExitStatus.WRONG_INPUT
        assert "expected the records of a run, which the archive of a study leaves" in called.err
    again = tmp_path / "stranger/sprays/again"
    for file in (made / "tables").iterdir():
        assert (again / "tables" / file.name).read_bytes() == file.read_bytes(), file


def test_files_of_traffic_are_inputs(tmp_path: Path) -> None:
    """Of Chakra's traces the scenario names what is before `.0.et`."""
    study = tmp_path / "study.yaml"
    study.write_text("scenarios: {a: in/a.yaml, b: in/b.yaml}\n")
    named = {
        "in/a.yaml": "workload: {kind: chakra, file: '[t]', groups: g.json}\ntopology: x.topo\n",
        "in/b.yaml": "jobs: [{workload: {kind: goal, file: g/x}}, {workload: {matrix: m.cm}}]\n",
        **dict.fromkeys(("in/[t].0.et", "in/[t].1.et", "in/g.json", "in/x.topo", "in/g/x"), ""),
        "in/m.cm": "",
    }
    for name, content in named.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "in/other.et").write_text("")
    inputs = inputs_of(study, portable=True)
    assert {str(place) for place in inputs.contents} == {
        f"inputs/{name}" for name in ("study.yaml", *named)
    }


MATRIX = """\
# from M\u00fcller
Nodes 2
Connections 1
0->1 id 1 start 0 size 65536
"""

GOAL = """\
num_ranks 2
rank 0 {
l1: send 4096b to 1 tag 1
}
rank 1 {
l1: recv 4096b from 0 tag 1
}
"""


def test_what_workloads_read_is_found_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "idea"
    place.mkdir()
    (place / "m.cm").write_text(MATRIX, encoding="latin-1")
    (place / "s.goal").write_text(GOAL)
    for name in ("t.0.et", "t.1.et", "g.json"):
        (place / name).write_bytes(b"\xff")
    (place / "tiny.yaml").write_text(TINY)
    (place / "round.yaml").write_text("base: ./turn.yaml\n")
    (place / "turn.yaml").write_text("base: ./round.yaml\n")
    (place / "study.yaml").write_text(
        """\
name: files
scenarios:
  matrix: {scenario: ./tiny.yaml, set: {workload: {kind: connections, matrix: ./m.cm}}}
  goal:
    scenario: ./tiny.yaml
    set: {workload: null, jobs: [{name: a, workload: {kind: goal, file: s.goal}}]}
  fabric: {scenario: healthy, set: {topology: ./fabric.yaml}}
cases: {MRC: {}}
metrics: [run.bytes_lost]
"""
    )
    fabric = (TOPOLOGIES / "clos-4plane.yaml").read_text()
    (place / "fabric.yaml").write_text(fabric.replace("name: clos-4plane", "name: mine"))
    monkeypatch.chdir(place)
    loaded = load_study("study.yaml")
    _, scenarios = loaded.plan(lambda scenario: scenario.topology.dilation)
    found = [w.kind for scenario in scenarios.values() for w in scenario.workloads.values()]
    assert found[:2] == ["connections", "goal"]
    assert [*scenarios.values()][-1].topology.name == "mine"
    monkeypatch.chdir("/")
    (place / "study.yaml").rename(place / "moved.yaml")
    assert load_study(place / "moved.yaml").plan(lambda s: s.topology.dilation)[1] == scenarios

    (place / "trace.yaml").write_text(
        "topology: ./round.yaml\nworkload: {file: t, groups: ./g.json, matrix: m.cm}\n"
    )
    kept = {each.name for each in inputs_of(place / "trace.yaml", portable=True).contents}
    assert kept == {
        *("trace.yaml", "round.yaml", "turn.yaml"),
        *("t.0.et", "t.1.et", "g.json", "m.cm"),
    }


def test_an_archive_keeps_inputs_as_they_are(tmp_path: Path) -> None:
    made = tmp_path / "made"
    for name in ("README.md", "study.json", "study.tex", "junit.xml"):
        (made / "inputs").mkdir(parents=True, exist_ok=True)
        (made / name).write_text(f"in {Path.home()}/x, {Path.home()}, {Path.home()}-2")
    (made / "inputs/m.cm").write_bytes(f"M\u00fcller {Path.home()}".encode("latin-1"))
    (made / "inputs/old.py").write_text("of an earlier version")
    content = load_study(
        {
            "name": "x",
            "scenarios": {"s": "healthy"},
            "cases": {"a": {}},
            "metrics": ["run.bytes_lost"],
        }
    ).content
    archive(tmp_path / "x.tar.gz", made, content, (), [Path("inputs/m.cm")])
    with tarfile.open(tmp_path / "x.tar.gz") as packed:
        assert "x/inputs/old.py" not in packed.getnames()
        kept, readme = (packed.extractfile(f"x/{name}") for name in ("inputs/m.cm", "README.md"))
        assert kept is not None
        assert kept.read() == (made / "inputs/m.cm").read_bytes()
        assert readme is not None
        assert readme.read().decode() == f"in x, ., {Path.home()}-2"


@pytest.mark.parametrize(
    ("status", "modified"),
    [
        ("", False),
        ("?? mine.py\n?? results/", False),
        ("?? mine.py\n?? testbed/new/", True),
        ("M testbed/rdma.py\n?? mine.py", True),
    ],
)
def test_files_of_ones_own_in_a_checkout_do_not_modify_the_testbed(
    status: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, modified: bool
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(installation, "PROJECT", tmp_path)
    monkeypatch.setattr(installation, "COMMIT", tmp_path / "none")
    monkeypatch.setattr(installation, "_git", lambda *words: status if "status" in words else "a1")
    assert installation.commit() == {"commit": "a1", "modified": modified}


def test_a_metric_of_flows_says_that_it_is_of_the_slowest() -> None:
    assert Shown(metric="flows.ideal_fraction").name == "slowest flow, of ideal split"
    assert Shown(metric="flows.before_fraction").name == "before faults, of even split"
    assert Shown(metric="faults.stall_rtt").name == "stall"
    assert Shown(metric="faults.stall_rtt", title="wait").name == "wait"


def test_a_table_says_how_many_of_its_runs_were_not_trusted() -> None:
    shown = Shown(metric="run.bytes_lost")
    table = Table(shown, ("a",), (Row("s", "lost", "B", (Cell(None, None, 0, 0, 6),)),), 2)
    dash, untrusted = table.notes[-2:]
    assert dash == "a dash: it was not measured"
    assert untrusted == "2 of 6 runs not trusted (runs.csv says which)"


def test_a_dry_run_checks_a_study_and_executes_nothing(call: Call, files: Path, edit: Edit) -> None:
    for name in ("aside", "counting"):
        (files.parent / f"code/{name}.py").write_text("open('executed', 'w')\n")
    checked = call("study", "idea/study.yaml", "--dry-run")
    assert checked.status == 0, checked.err
    assert "sprays: 8 runs, 4 cells with 2 seeds" in checked.out
    listed = "transport.spray: idea/code/mine.py:Mine, idea/code/aside.py, in 2 of 4 cells"
    assert f"executes: {listed}" in checked.out
    listed = "metric ./code/gauge.py:heard_count: idea/code/gauge.py, idea/code/counting.py"
    assert f"executes: {listed}" in checked.out
    assert not Path("executed").exists()
    assert not Path("results").exists()
    assert "testbed study idea/study.yaml --dry-run" in call("validate", "idea/study.yaml").err
    edit("transport.evs: 4", "transport.evs: -4")
    assert "set.transport.evs" in call("study", "idea/study.yaml", "--dry-run").err


def test_code_needs_consent(call: Call, files: Path) -> None:
    for named in ("idea/code/gauge.py", "mine.py:Mine"):
        refused = call("study", str(files))
        assert refused.status == ExitStatus.WRONG_INPUT
        assert named in refused.err
        assert "--allow-code" in refused.err
        assert not Path("results").exists()
        content = files.read_text().splitlines()
        files.write_text("\n".join(line for line in content if "gauge" not in line))


def test_a_metric_of_ones_own_is_a_number_or_names_its_line(files: Path) -> None:
    def measured(body: str) -> object:
        functions = f"def heard_count(run):\n    {body}\n\ndef worst_losses_count(run): ...\n"
        (files.parent / "code/gauge.py").write_text(functions)
        code = load_study(files).functions["./code/gauge.py:heard_count"]
        return OwnMetric.of(code)(Result(Path("made")))

    assert measured("return 2") == 2.0
    assert measured("return float('inf')") == NEVER
    assert measured("return None") is None
    for body, said in (
        ("return 1 / 0", "gauge.py:2: heard_count: found ZeroDivisionError.*, of the run made"),
        (
            "return 'many'",
            "gauge.py:1: heard_count: found 'many' returned, of the run made, expected",
        ),
        ("return float('nan')", "found nan returned, of the run made"),
        ("return -float('inf')", "found -inf returned"),
        ("return 10**5000", "found a value of the type int returned"),
        ("raise SystemExit(3)", "found SystemExit: 3"),
    ):
        with pytest.raises(InputError, match=said):
            measured(body)


def test_a_metric_of_ones_own_is_called_by_its_name() -> None:
    shown = Shown(metric="../code/gauge.py:longest_gap_rtt")
    assert (shown.name, shown.unit.symbol, shown.stem) == (
        "longest gap",
        "RTT",
        "gauge-longest_gap_rtt",
    )
    assert Shown(metric="./gauge.py:rtt").name == "rtt"


def test_the_only_case_need_not_be_named() -> None:
    content = {"name": "x", "scenarios": {"s": "healthy", "t": "healthy"}, "cases": {"a": {}}}
    bound = {"metric": "run.bytes_lost", "at_most": 0, "scenario": ["s", "t"]}
    (hypothesis,) = load_study({**content, "expect": [bound]}).content.expect
    assert (hypothesis.case, hypothesis.scenario) == ("a", ("s", "t"))
    with pytest.raises(InputError, match=r"expect\[0\].case: expected a case of the study: a, b"):
        load_study({**content, "cases": {"a": {}, "b": {}}, "expect": [bound]})


WRONG = {
    "an unknown scenario": (
        "plain: ./tiny.yaml",
        "plain: permutatoin",
        "study.yaml:5: scenarios.plain: found permutatoin",
    ),
    "a scenario that is not there": ("plain: ./tiny.yaml", "plain: ./none.yaml", "none.yaml"),
    "a duplicate case": ("  MRC: {}", "  MRC: {}\n  MRC: {}", "the key MRC a second time"),
    "cases alike as directories": (
        "  MRC: {}",
        "  MRC: {}\n  mine 1: {}",
        "differs from the others",
    ),
    "an unknown metric": (
        "metric: run.bytes_lost",
        "metric: run.bytes_lots",
        "did you mean bytes_lost?",
    ),
    "a metric without scope": (
        "metric: run.bytes_lost",
        "metric: bytes_lost",
        "did you mean run.bytes_lost?",
    ),
    "a metric without scope and unit": (
        "metric: run.bytes_lost",
        "metric: stall",
        "did you mean faults.stall_ms or faults.stall_rtt or faults.stall_real_us?",
    ),
    "a metric that is a scope": (
        "metric: run.bytes_lost",
        "metric: faults",
        "did you mean faults.level or",
    ),
    "a metric of another scope": (
        "metric: run.bytes_lost",
        "metric: flows.stall_rtt",
        "did you mean faults.stall_rtt?",
    ),
    "a key that would replace one of the scenario": (
        "  MRC: {}",
        "  MRC: {transport: {spray: blind}}",
        "study.yaml:8: cases.MRC.transport: found transport, expected keys below it, or",
    ),
    "a scenario that the study makes too short": (
        "plain: ./tiny.yaml",
        "plain: {scenario: link-failure, set: {duration: 9 RTT}}",
        "scenarios.plain.scenario: found link-failure, changed as the case MRC: ",
    ),
    "no seeds": ("seeds: [5, 6]", "seeds: 0", "study.yaml:3: seeds: found 0, expected how many"),
    "a seed twice": ("seeds: [5, 6]", "seeds: [1, 1]", "different seeds"),
    "a metric twice": ("  - faults.stall_rtt\n", "  - flows.run_fraction\n", "a second time"),
    "an unknown case": ("more_than: MRC", "more_than: MCR", "did you mean MRC?"),
    "a case beside itself": ("more_than: MRC", "more_than: mine_1", "another case"),
    "two things at once": ("more_than: MRC", "more_than: MRC, at_least: 1", "one of: at_least"),
    "an unknown key of a case": (
        "{transport.spray: ./code/mine.py:Mine}",
        "{transport.sprey: blind}",
        "study.yaml:9: cases.mine_1.transport.sprey",
    ),
    "a wrong value of a case": (
        "./code/mine.py:Mine",
        "blond",
        "study.yaml:9: cases.mine_1.transport.spray: found blond",
    ),
    "a wrong key of a scenario": ("{transport.evs: 4}", "{transport.evs: -4}", "set.transport.evs"),
    "a case without keys": ("  MRC: {}", "  MRC:", "found nothing, expected a mapping\n"),
    "a case without name": ("  MRC: {}", "  '': {}", "expected text that is not empty"),
    "the seed as a key": ("  MRC: {}", "  MRC: {seed: 3}", "seeds: gives the seeds"),
    "no cases": (STUDY[STUDY.index("cases:") : STUDY.index("metrics:")], "", "cases: expected"),
    "a function that is not there": (
        "{metric: ./code/gauge.py:heard_count, title: answers}",
        "./code/gauge.py:herd_count",
        "study.yaml:13: metrics[2]: found herd_count, expected a function of idea/code/gauge.py",
    ),
    "code that is not there": (
        "- {metric: ./code/gauge.py:heard_count, title: answers}",
        "- ./gauge.py:heard_count",
        "expected a Python file, relative to the study",
    ),
    "a class that is not there": ("mine.py:Mine", "mine.py:Mein", "did you mean Mine?"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_named_with_its_place(call: Call, edit: Edit, wrong: str) -> None:
    old, new, said = WRONG[wrong]
    edit(old, new)
    refused = call("study", "idea/study.yaml", "--allow-code")
    assert refused.status == ExitStatus.WRONG_INPUT
    assert said in refused.err
    assert "Traceback" not in refused.err
    assert not Path("results").exists()


@pytest.mark.usefixtures("files")
def test_a_directory_belongs_to_one_study(call: Call, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    plan = {"name": "others", "simulated": True, "settings": {}, "cases": []}
    (tmp_path / "here/sweep.json").write_text(json.dumps({"plan": plan}))
    refused = call("study", "idea/study.yaml", "--allow-code", "--into", "here")
    assert refused.status == ExitStatus.WRONG_INPUT
    assert "--into: found here, expected that of sprays, not of others" in refused.err


def test_an_archive_needs_paths_that_lead_there_elsewhere(
    call: Call, edit: Edit, tmp_path: Path
) -> None:
    edit("plain: ./tiny.yaml", f"plain: {tmp_path}/idea/tiny.yaml")
    refused = call("study", "idea/study.yaml", "--allow-code", "--archive", "all.tar.gz")
    assert refused.status == ExitStatus.WRONG_INPUT
    assert "relative to" in refused.err
    assert not Path("results").exists()


@pytest.mark.parametrize("name", ["all.zip", "none/all.tar.gz", "idea.tar.gz"])
def test_an_archive_that_cannot_be_written_is_refused_before_the_runs(
    files: Path, name: str, tmp_path: Path
) -> None:
    (tmp_path / "idea.tar.gz").mkdir()
    with pytest.raises(InputError, match=r"--archive: found .*, expected a file"):
        testbed.study(files, results=tmp_path / "results", archive=tmp_path / name)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("bounds", "values", "others", "answer"),
    [
        ({"at_most": 5}, [1, 2, 3], [], "supported"),
        ({"at_most": 5}, [6, 7, NEVER], [], "refuted"),
        ({"at_most": 5}, [1, 2, NEVER], [], "undecided"),
        ({"at_least": 5, "at_most": 9}, [5, 7, 9], [], "supported"),
        ({"at_least": 5}, [NEVER, NEVER, NEVER], [], "refuted"),
        ({"at_least": 0.5, "of": "b"}, [1, 1, 1], [2, 2, 2], "supported"),
        ({"at_most": 0.4, "of": "b"}, [1, 1, 1], [2, 2, 2], "refuted"),
        ({"at_most": 0.4, "of": "b"}, [1, 1, 1], [0, 0, 0], "not judged"),
        ({"at_least": 0.9, "of": "b"}, [2, 2, 2], [1, 2, 9], "undecided"),  # others vary, too
        ({"at_most": 2, "of": "b"}, [2, 2, 2], [0, 2, 9], "undecided"),
        ({"at_most": 2, "of": "b"}, [0, 0, 0], [0, 2, 9], "supported"),
        ({"at_most": 2, "of": "b"}, [2, 2, NEVER], [2, 2, NEVER], "undecided"),
        ({"at_most": 2, "of": "b"}, [-1, 2, 2], [2, 2, 2], "not judged"),
        ({"less_than": "b"}, [1, 2, 3], [4, 5, 6], "supported"),
        ({"more_than": "b"}, [1, 2, 3], [4, 5, 6], "refuted"),
        ({"more_than": "b"}, [1, 2, 5], [4, 5, 6], "undecided"),
        ({"more_than": "b"}, [1, 1, 1], [1, 1, 1], "refuted"),
        ({"less_than": "b"}, [1, 2, 3], [NEVER, NEVER, NEVER], "supported"),
        ({"less_than": "b"}, [1e-15, 0, 0], [2e-15, 2e-15, 2e-15], "refuted"),  # rounding
        ({"at_most": 0}, [1e-15, 0, 0], [], "supported"),
        ({"less_than": "b"}, [1, 2], [4, 5, 6], "not judged"),  # one run measured nothing
    ],
)
def test_an_answer_is_that_of_the_whole_interval(
    bounds: dict[str, float | str],
    values: list[float],
    others: list[float],
    answer: Answer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metric = "flows.run_fraction"
    content = load_study(
        {
            "name": "x",
            "scenarios": {"s": "healthy"},
            "cases": {"a": {}, "b": {}},
            "expect": [{"metric": metric, "case": "a", **bounds}],
        }
    ).content

    class Fake:
        def __init__(self, value: float | None) -> None:
            self.value = value

        def usable(self, *, require_trusted: bool) -> bool:
            return not require_trusted

    monkeypatch.setattr("testbed.results.comparison.number_of", lambda summary, _: summary.value)

    def group(name: str, numbers: list[float]) -> Group:
        padded = [*numbers, None][:3] if len(numbers) < 3 else numbers
        runs = tuple(Path(str(i)) for i in range(len(padded)))
        return Group(name, runs, tuple(map(Fake, padded)))  # type: ignore[arg-type]

    cells = {("s", "a"): group("a", values), ("s", "b"): group("b", others or values)}
    (judgement,) = judged(content, cells)
    assert judgement.answer == answer, judgement


def test_a_hypothesis_compares_with_another_scenario() -> None:
    metric = "run.bytes_lost"
    file = {"name": "x", "scenarios": {"s": "healthy", "t": "healthy"}, "cases": {"a": {}}}
    hypothesis = {"metric": metric, "scenario": "s", "of": "t", "at_most": 0.6}
    content = load_study({**file, "expect": [hypothesis]}).content
    runs: Any = [SimpleNamespace(usable=lambda **_: True)] * 2
    cells = {
        (scenario, "a"): Group("a", (Path("1"), Path("2")), runs, own={metric: values})
        for scenario, values in (("s", [1.0, 1.0]), ("t", [2.0, 2.0]))
    }
    (judgement,) = judged(content, cells)
    assert (judgement.scenario, judgement.answer) == ("s", "supported")
    assert judgement.measured.startswith("ratio 0.5")
    changes: list[dict[str, Any]] = [{"of": "s"}, {"scenario": []}]
    for wrong in changes:
        with pytest.raises(InputError, match="another scenario, to compare it with"):
            load_study({**file, "expect": [{**hypothesis, **wrong}]})


def test_an_answer_says_why_no_run_has_a_metric() -> None:
    metric = "jobs.time_rtt"
    file = {"name": "x", "scenarios": {"s": "healthy"}, "cases": {"a": {}}}
    content = load_study({**file, "expect": [{"metric": metric, "at_most": 1}]}).content
    runs: Any = [SimpleNamespace(usable=lambda **_: True, jobs=())] * 2
    group = Group("a", (Path("1"), Path("2")), runs, own={metric: [None] * 2})
    (judgement,) = judged(content, {("s", "a"): group})
    assert judgement.measured == "a: 2 of 2 runs measured no jobs.time_rtt: there were no jobs"


def test_a_hypothesis_says_itself() -> None:
    one = Hypothesis(metric="faults.stall_rtt", case="a", less_than="b")
    assert str(one) == one.in_full == "a: faults.stall_rtt less than that of b"
    two = Hypothesis(claim="it keeps up", metric="faults.level", case="a", of="b", at_least=0.9)
    assert two.in_full == "it keeps up (a: faults.level at least 0.9 of that of b)"


def test_twelve_cases_stay_apart_in_colour_and_in_print() -> None:
    looks = [look(i) for i in range(MOST_CASES)]
    assert len({each.mark for each in looks}) == MOST_CASES
    for one, other in combinations(looks, 2):
        distance = np.linalg.norm(np.subtract(to_rgb(one.colour), to_rgb(other.colour)))
        assert distance > 0.15, (one, other)


def test_a_legend_has_every_case_as_it_is_written() -> None:
    names = ["_first", r"$\frac a$", "cost: $"]
    content = load_study(
        {
            "name": "x",
            "scenarios": {"s": "healthy"},
            "cases": {name: {} for name in names},
            "metrics": ["run.bytes_lost"],
        }
    ).content
    with style.style(plain=True):
        figure = style.new_figure(1.0)
        _legend(figure, content, over_time=True)
        figure.savefig(io.BytesIO())
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names


@pytest.mark.parametrize(
    ("medians", "cut"),
    [((0.98, 0.99), True), ((0.3, 0.99), False), ((0.98, 0.98), False), ((0.98, NEVER), False)],
)
def test_an_axis_of_values_that_are_near_does_not_begin_at_zero(
    medians: tuple[float, float], *, cut: bool
) -> None:
    cells = [Cell(Estimate(m, m, m, 6), None, 6, 0, 6) for m in medians]
    values = [Value(float(i), cell, "black") for i, cell in enumerate(cells)]
    for from_zero in (True, False):
        axes = Figure().subplots()
        draw_values(axes, "", values, from_zero=from_zero)
        assert bool(axes.get_xlim()[0] > 0) is (cut and not from_zero)
        assert len(axes.get_xticks()) > 2


def test_tables_escape_what_latex_and_markdown_read() -> None:
    table = Table(
        load_study(
            {
                "name": "x",
                "scenarios": {"s": "healthy"},
                "cases": {"a": {}},
                "metrics": ["flows.run_fraction"],
            }
        ).content.metrics[0],
        ("[5] a_b|c*$",),
        (Row("50% & more than a column", "share", "%", (Cell(None, None, 0, 0, 1),)),),
    )
    assert in_latex(r"\~^{}#$") == (r"\textbackslash{}\textasciitilde{}\textasciicircum{}\{\}\#\$")
    assert in_latex("\u03bb \u2265 2, \u0394 --set e\u0301") == (
        r"$\lambda$ $\geq$ 2, $\Delta$ -{}-set " + "\u00e9"
    )
    latex = as_latex(table, "100%")
    assert r"{[}5{]} a\_b\textbar{}c{*}\$ & --" in latex
    assert r"\caption{100\%}" in latex
    heading, _, row = as_markdown(table).splitlines()
    assert heading == "|  | 50% & more than a column |"
    assert r" & \shortstack[r]{50\% \& more than \\ a column} \\" in latex
    assert row == rf"| \[5\] a\_b\|c\*\$ | {DASH} |"


def _of_size(cases: int, scenarios: int) -> Table:
    """A table with wide names and numbers."""
    cell = Cell(Estimate(123.4, 120.1, 1245.9, 6), Estimate(1.0, 0.5, 2.0, 6), 6, 0, 6)
    rows = (Row(f"s{i}: 50% & \u03bb", "stall", "RTT", (cell,) * cases) for i in range(scenarios))
    names = tuple(f"a case with a long name, {i}" for i in range(cases))
    return Table(Shown(metric="faults.stall_rtt"), names, tuple(rows))


@pytest.mark.parametrize(
    ("cases", "scenarios", "floats", "tabulars"),
    [(3, 1, 1, 1), (3, 3, 1, 1), (3, 4, 1, 2), (12, 12, 2, 4)],
)
def test_a_table_of_latex_is_no_larger_than_a_page(
    cases: int, scenarios: int, floats: int, tabulars: int
) -> None:
    latex = as_latex(_of_size(cases, scenarios), "100%")
    assert latex.count(r"\begin{table*}") == latex.count(r"\caption") == floats
    assert latex.count(r"\begin{tabular}") == tabulars
    assert latex.count(r"\label") == 1
    for i in range(scenarios):
        assert latex.count(f"s{i}: 50") == 1


@skip_without("pdflatex", "texlive-latex-recommended")
def test_latex_takes_tables_of_all_sizes(tmp_path: Path) -> None:
    tables = [as_latex(_of_size(*size), "100%") for size in ((1, 1), (3, 3), (3, 4), (12, 12))]
    document = "\n".join(
        [
            r"\documentclass[10pt,twocolumn]{article}\usepackage{booktabs}\begin{document}",
            *tables,
            r"\end{document}",
        ]
    )
    (tmp_path / "paper.tex").write_text(document)
    command = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, said
    assert "Overfull" not in said
    assert "too large" not in said


def test_the_example_is_the_one_of_the_document_and_can_be_made() -> None:
    page = (ROOT / "docs/studies.md").read_text()
    shown = re.search(r"```yaml\n(name: reps.*?)```", page, re.DOTALL)
    assert shown is not None
    assert (ROOT / "examples/reps.yaml").read_text() == shown[1]
    loaded = load_study(ROOT / "examples/reps.yaml")
    plan, _ = loaded.plan(lambda scenario: scenario.topology.dilation)
    assert len(plan.runs) == 6 * len(loaded.content.cells)


@pytest.mark.simulated
def test_a_study_from_python_grows_and_uses_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    content = {
        "name": "python",
        "seeds": [7],
        "scenarios": {"s": f"{tmp_path}/tiny.yaml"},
        "cases": {"MRC": {}, "few": {"transport.evs": 4}},
        "metrics": ["flows.run_fraction"],
    }
    made = testbed.study(content, results=tmp_path / "results")
    assert made.exit_status is ExitStatus.AS_EXPECTED
    assert made.frame["case"].to_list() == ["MRC", "few"]
    assert [run.seed for run in made.results("s", "few")] == [7]
    with pytest.raises(InputError, match="metrics"):
        load_study({"name": "x", "scenarios": {"s": "healthy"}, "cases": {"a": {}}})

    cases = {"two": {"transport.evs": 2}, "few": {"transport.evs": 4}}
    more = testbed.study(content | {"cases": cases}, results=tmp_path / "results")
    assert more.directory == made.directory
    assert more.frame["case"].to_list() == ["two", "few"]
    assert more.cells["s", "few"].runs == made.cells["s", "few"].runs  # none was made again
    changed = {"cases": {"few": {"transport.evs": 3}}, "metrics": ["run.bytes_lost"]}
    other = testbed.study(content | changed, results=tmp_path / "results")
    assert {file.stem for file in (made.directory / "figures").iterdir()} == {
        "run-bytes_lost",
        "goodput-s",
    }
    assert not (made.directory / "tables/flows-run_fraction.md").exists()
    assert other.cells["s", "few"].runs != made.cells["s", "few"].runs  # it is another run now
