"""`testbed new` writes files that run, with a test that passes."""

import sys
from pathlib import Path

import pytest

from testbed.cli.new import Kind
from tests.cli.conftest import Call
from tests.commands import completed


@pytest.mark.simulated
@pytest.mark.parametrize("kind", [Kind.SELECTOR, Kind.CONTROLLER])
def test_a_class_comes_with_a_test_that_passes(call: Call, kind: Kind) -> None:
    called = call("new", kind, "of_mine")
    assert called.status == 0, called.err
    assert {file.name for file in Path.cwd().iterdir()} == {"of_mine.py", "test_of_mine.py"}
    assert "class OfMine:" in Path("of_mine.py").read_text()
    tested = [sys.executable, "-P", "-m", "pytest", "-q", "test_of_mine.py"]
    done = completed(tested)
    assert done.returncode == 0, done.stdout
    listed = list(Path("of_mine.py").read_text().split('"""')[1].splitlines())
    commands = "\n".join(listed).replace("\\\n", "").split("\n")
    (sweep,) = [line.split() for line in commands if "--sweep" in line]
    short = "--set", "duration=10 RTT", "--set", "timeline=[]", "--set", "expect={}"
    called = call(*sweep[1:], "--no-figures", *short)
    assert called.status == 0, called.err


@pytest.mark.simulated
def test_a_scenario_holds_what_it_expects(call: Call) -> None:
    assert call("new", "scenario", "of_mine").status == 0
    assert call("validate", "./of_mine.yaml").status == 0
    called = call("simulate", "./of_mine.yaml", "--no-figures", "--require-trusted")
    assert called.status == 0, called.out + called.err


@pytest.mark.simulated
def test_a_study_has_its_table_and_figure(call: Call) -> None:
    assert call("new", "study", "of_mine").status == 0
    file = Path("of_mine.yaml")
    file.write_text(file.read_text().replace("60 RTT", "12 RTT").replace("20 RTT", "4 RTT"))
    file.write_text(file.read_text().replace("seeds: 6", "seeds: 2"))
    called = call("study", "./of_mine.yaml")
    assert called.status == 0, called.err
    assert len([*Path("results/study-of_mine/figures").glob("*.pdf")]) >= 2


@pytest.mark.parametrize("name", ["Mine", "my-own", "class", "1st", "../out", "a" * 41])
def test_a_name_that_is_no_module_is_refused(call: Call, name: str) -> None:
    called = call("new", "selector", name)
    assert called.status == 2
    assert f"NAME: found {name}, expected small letters, digits and _" in called.err
    assert not [*Path.cwd().iterdir()]


@pytest.mark.parametrize(
    ("kind", "name"), [(Kind.SELECTOR, "random"), (Kind.CONTROLLER, "numpy"), (Kind.STUDY, "true")]
)
def test_a_name_that_others_mean_is_refused(call: Call, kind: Kind, name: str) -> None:
    called = call("new", kind, name)
    assert called.status == 2
    assert f"NAME: found {name}, expected a name that means nothing else" in called.err
    assert f"such as my_{name}" in called.err
    assert not [*Path.cwd().iterdir()]


def test_nothing_is_written_over(call: Call) -> None:
    Path("test_mine.py").write_text("of somebody")
    called = call("new", "selector", "mine")
    assert called.status == 2
    assert "NAME: found test_mine.py, which exists" in called.err
    assert Path("test_mine.py").read_text() == "of somebody"
    assert not Path("mine.py").exists()
