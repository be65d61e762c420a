"""No process of the testbed imports from the current directory."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import testbed
from testbed import interpreter
from testbed.studies.bench.cost import in_new_process
from testbed.studies.labs.grading.course import Course, grade_all
from tests.commands import completed
from tests.planted import NAMES, Planted

ROOT = Path(testbed.__file__).parents[1]
COMMAND = Path(sys.executable).with_name("testbed")
FOLDERS = ("testbed", "scripts", "labs", "examples")
SOURCES = {
    file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
    for folder in FOLDERS
    for file in sorted((ROOT / folder).rglob("*.py"))
}
"""The text of each file, by its name."""

BY_THEMSELVES = {
    "examples/train.py": "names the Python that lacks torch, and starts none",
    "testbed/host/own_worker.py": "has Python's own library alone, and starts itself with -I",
    "scripts/hatch_build.py": "builds the package, which it cannot import",
    "testbed/interpreter.py": "is the one place",
    "testbed/results/records.py": "names a remedy for a program of the user's",
}
"""Files that may name `sys.executable` as a program, and why."""

STARTERS = {"LocalCluster", "SSHCluster", "SLURMCluster", "ProcessPoolExecutor", "get_context"}
"""What starts Python by itself."""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    """Modules in the current directory, and an empty entry of PYTHONPATH, which stands for it."""
    planted = Planted(tmp_path)
    monkeypatch.chdir(planted.directory)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    return planted


# --- every place ------------------------------------------------------------------------------


def _names_the_interpreter(tree: ast.AST) -> Iterator[int]:
    """The lines that have `sys.executable` as anything but the place of other programs."""
    places = {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Path" and node.args
    }
    for node in ast.walk(tree):
        is_it = isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable"
        if is_it and id(node) not in places:
            yield node.lineno  # type: ignore[attr-defined]
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            first = node.elts[0]
            if isinstance(first, ast.Constant) and re.fullmatch(r"python[\d.]*", str(first.value)):
                yield node.lineno


def test_every_interpreter_is_started_in_one_place() -> None:
    found = [
        f"{name}:{line}"
        for name, text in SOURCES.items()
        if name not in BY_THEMSELVES and ("executable" in text or '"python' in text)
        for line in _names_the_interpreter(ast.parse(text))
    ]
    assert not found


def test_a_command_line_of_python_is_passed_to_what_starts_it_safely() -> None:
    """`subprocess` itself would inherit directory and PYTHONPATH; `-I` needs neither."""
    found = [
        f"{name}:{node.lineno}"
        for name, text in SOURCES.items()
        if name not in BY_THEMSELVES and "subprocess." in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("subprocess.")
        if "interpreter." in ast.unparse(node) or re.search(r"\bpython\b", ast.unparse(node))
        if "isolated=True" not in ast.unparse(node)
    ]
    assert not found


def test_libraries_that_start_python_are_told_how() -> None:
    """Each file that uses one of them has the options or the environment from the one place."""
    found = [
        name
        for name, text in SOURCES.items()
        if name not in BY_THEMSELVES and any(f"{starter}(" in text for starter in STARTERS)
        if "safe_children()" not in text and "interpreter.python()" not in text
    ]
    assert not found


def test_scripts_and_documents_start_modules_safely() -> None:
    """`tests.labs.prepared` is the checkout's own, and `venv` makes the first interpreter."""
    unsafe = re.compile(r"python3?\"?(?: -[uqB])* -m (?:testbed|pytest|distributed|dask)\b")
    files = [ROOT / "Makefile", ROOT / "action.yml", ROOT / "Containerfile", ROOT / "README.md"]
    files += [*ROOT.glob("docs/**/*.md"), *ROOT.glob("scripts/**/*.sh")]
    files += [*ROOT.glob("scripts/*.yml")]
    files += [ROOT / "CONTRIBUTING.md", *ROOT.glob(".github/workflows/*.yml")]
    found = [
        f"{file.relative_to(ROOT)}: {text}"
        for file in files
        for text in unsafe.findall(file.read_text(encoding="utf-8"))
    ]
    assert not found


def test_the_documents_name_the_rule_of_sudo_that_is_used() -> None:
    options = " ".join(interpreter.TESTBED[1:])
    text = (ROOT / "docs/campaigns.md").read_text(encoding="utf-8")
    assert f"NOPASSWD: /opt/mrc/.venv/bin/python {options} run *" in text


# --- what they have ---------------------------------------------------------------------------


def test_pythonpath_without_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(["", ".", "mine", str(tmp_path), "/opt/x", ""])
    )
    variables = interpreter.environment(MORE="1")
    assert variables["PYTHONPATH"] == os.pathsep.join([str(tmp_path / "mine"), "/opt/x"])
    assert (variables["PYTHONSAFEPATH"], variables["MORE"]) == ("1", "1")
    with interpreter.safe_children():
        assert os.environ["PYTHONPATH"] == variables["PYTHONPATH"]
    assert os.environ["PYTHONPATH"].startswith(os.pathsep)
    assert "PYTHONSAFEPATH" not in os.environ


def test_a_process_is_neither_in_the_current_directory_nor_are_those_that_it_starts(
    planted: Planted,
) -> None:
    code = (
        "import json, os, subprocess, sys\n"
        "inner = 'import json, sys; print(json.dumps(sys.path))'\n"
        f"os.chdir({str(planted.directory)!r})\n"
        "subprocess.run([sys.executable, '-c', inner], check=True)"
    )
    done = interpreter.run(interpreter.python("-c", code), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(planted.directory) not in done.stdout
    code = "import os; print(os.getcwd())"
    done = interpreter.run(interpreter.python("-c", code), capture_output=True, text=True)
    assert done.stdout.strip() == interpreter.NEUTRAL
    assert not planted.executed


# --- from end to end --------------------------------------------------------------------------


def test_the_planted_modules_would_be_executed(planted: Planted) -> None:
    """What these tests look for is found where Python is started as it is by default."""
    subprocess.run([sys.executable, "-c", "import json"], check=False, capture_output=True)
    assert planted.executed
    assert planted.executed[0] in NAMES


def _ignore(*_: object) -> None:
    pass


def test_the_grader_executes_nothing_beside_a_submission(planted: Planted) -> None:
    submission = planted.directory / "ada.zip"
    submission.write_bytes(b"not a zip")
    (grade,) = grade_all([Path("ada.zip")], Course(b"key", labs=ROOT / "labs"), _ignore)
    assert not planted.executed
    assert "grading ended" not in grade.error
    assert "zip" in grade.error


def _measured(_scenario: object) -> list[str]:
    return sys.path


def test_the_bench_measures_with_the_installed_package(planted: Planted) -> None:
    path = in_new_process(_measured, None)
    assert str(planted.directory) not in path
    assert not planted.executed


@pytest.mark.simulated
@pytest.mark.parametrize("place", [(), ("--on", "local")])
def test_series_are_made_by_the_installed_package(planted: Planted, place: tuple[str, ...]) -> None:
    """By the command, whose own path has the current directory only if PYTHONPATH says so."""
    scenario = "name: mine\ntopology: own/fabric.yaml\nduration: 1 s\n"
    scenario += "workload: {kind: write_bw, pairs: [[h0, h1]], message_size: 64 KiB}\n"
    (planted.directory / "own").mkdir()
    (planted.directory / "mine.yaml").write_text(scenario, encoding="utf-8")
    fabric = (ROOT / "topologies/clos-tiny.yaml").read_text(encoding="utf-8")
    (planted.directory / "own/fabric.yaml").write_text(fabric, encoding="utf-8")
    options = ["--no-figures", "--repeat", "2", "--results", "made"]
    done = completed(
        [COMMAND, "simulate", "./mine.yaml", *options, *place],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert not planted.executed
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([*(planted.directory / "made").rglob("summary.json")]) == 2


def test_the_module_leaves_the_current_directory_before_it_imports(planted: Planted) -> None:
    """`python -m testbed`; what Python imports before that module is beyond its reach."""
    for name in ("testbed", "sitecustomize"):
        (planted.directory / f"{name}.py").unlink()
    done = completed(
        [sys.executable, "-m", "testbed", "list"],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert not planted.executed
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", ["testbed", "write_bw"])
@pytest.mark.parametrize("entry", ["", "."])
def test_a_command_leaves_the_current_directory_of_pythonpath(
    planted: Planted, program: str, entry: str
) -> None:
    """What Python imports before it is beyond its reach."""
    for name in ("testbed", "sitecustomize"):
        (planted.directory / f"{name}.py").unlink()
    for name in ("typer", "typing", "pathlib", "subprocess"):
        shutil.copy(planted.directory / "json.py", planted.directory / f"{name}.py")
    done = completed(
        [COMMAND.with_name(program), "--help"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([entry, "/opt/x"])},
    )
    assert not planted.executed
    assert done.returncode == 0, done.stderr


def test_a_checkout_in_the_current_directory_is_still_used() -> None:
    done = completed(
        [sys.executable, "-m", "testbed", "list"],
        env={**os.environ, "PYTHONPATH": os.pathsep},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
