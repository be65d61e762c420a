"""The action for GitHub: its steps are executed here as a runner executes them."""

import json
import os
import re
import runpy
import sys
import sysconfig
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from testbed.model.errors import ExitStatus
from tests.commands import TESTBED, completed

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.simulated, pytest.mark.long]

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")

SCENARIO = """\
name: short
topology: clos-tiny
duration: 2 s
workload: {kind: write_bw, pairs: [[h0, h1]], message_size: 64 KiB}
expect:
  run:
    bytes_lost: 0
    qps_in_error: {at_least: 3}
  flows:
    run_fraction: {at_least: 0.1}
"""


@dataclass(frozen=True, slots=True)
class Job:
    """What came of the steps: the outputs of the action, what was printed, and the summary."""

    status: int
    outputs: dict[str, str]
    printed: str
    summary: str

    @property
    def annotations(self) -> list[str]:
        """The workflow commands that were printed."""
        return [line for line in self.printed.splitlines() if line.startswith("::")]


Runner = Callable[..., Job]


StandIn = Callable[[int], tuple[Path, Path]]


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    """Makes a place of the action that is set up, and whose `testbed` emulates nothing.

    Its `testbed doctor` finds nothing wrong, its `testbed run` simulates and ends with a chosen
    status; both write down how they were called.
    """

    def make(status: int) -> tuple[Path, Path]:
        place, calls = tmp_path / "action", tmp_path / "calls"
        binaries, scripts = place / ".venv/bin", place / "scripts"
        binaries.mkdir(parents=True)
        scripts.mkdir()
        (place / ".venv/pyvenv.cfg").symlink_to(Path(sys.prefix, "pyvenv.cfg"))
        packages = Path(sysconfig.get_path("purelib"))
        own = place / ".venv" / packages.relative_to(sys.prefix)
        own.mkdir(parents=True)
        (own / "this.pth").write_text(f"{packages}\n{ROOT}\n")
        (binaries / "python").symlink_to(Path(sys.executable).resolve())
        for name in ("ci.py", "owned.sh"):
            (scripts / name).symlink_to(ROOT / "scripts" / name)
        programs = {
            scripts / "setup.sh": "exit 0",
            binaries / "testbed": f'echo "$*" >>"{calls}"\n'
            "case $1 in\n"
            f'simulate) exec "{TESTBED}" "$@" ;;\n'
            f'run) "{TESTBED}" simulate --no-figures "${{@:2}}"; exit {status} ;;\n'
            "esac",
        }
        for program, text in programs.items():
            program.write_text(f"#!/usr/bin/env bash\n{text}\n")
            program.chmod(0o755)
        return place, calls

    return make


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Executes the action's steps in an empty workspace, as `bash` steps of a runner."""
    workspace = tmp_path / "work space"
    workspace.mkdir()

    def run(
        document: str = SCENARIO, able: str = "false", place: Path = ROOT, **inputs: str
    ) -> Job:
        (workspace / "mine.yaml").write_text(document)
        given = {name: str(key["default"]) for name, key in ACTION["inputs"].items()}
        given |= {"scenario": "mine.yaml"} | inputs
        context = {f"inputs.{name}": text for name, text in given.items()}
        context["github.action_path"] = str(place)
        summary = tmp_path / "summary.md"
        summary.touch()
        status, printed = 0, ""
        for number, step in enumerate(STEPS):
            output = tmp_path / f"output-{number}"
            output.touch()
            environment = {name: _evaluated(text, context) for name, text in step["env"].items()}
            script = tmp_path / f"step-{number}.sh"
            script.write_text(step["run"])
            done = completed(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
                cwd=workspace,
                env=os.environ
                | {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(workspace)}
                | {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
                | environment,
            )
            printed += done.stdout
            found = _outputs(output.read_text())
            if step.get("id") == "doctor" and done.returncode == 0:
                assert found["able"] in ("true", "false")
                found["able"] = able  # whether this machine can emulate does not matter here
            context |= {f"steps.{step.get('id')}.outputs.{name}": found[name] for name in found}
            status = done.returncode
            if status != 0:
                break
        outputs = {
            name: _evaluated(output["value"], context) for name, output in ACTION["outputs"].items()
        }
        return Job(status, outputs, printed, summary.read_text())

    return run


def _outputs(text: str) -> dict[str, str]:
    found = re.findall(r"^(.+?)<<(\w+)\n(.*?)\n\2\n", text, re.MULTILINE | re.DOTALL)
    return {name: value for name, _, value in found}


def _evaluated(text: str, context: dict[str, str]) -> str:
    return EXPRESSION.sub(lambda found: context.get(found[1], ""), text)


def test_no_input_is_a_part_of_a_shell_script() -> None:
    for step in STEPS:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"


def test_a_run_as_expected_sets_every_output(runner: Runner, tmp_path: Path) -> None:
    """Where fabrics cannot be emulated it is simulated, and that is said."""
    met = SCENARIO.replace("at_least: 3", "at_most: 3")
    job = runner(met, results="my results")
    assert job.status == 0, job.printed
    assert (job.outputs["verdict"], job.outputs["exit-status"]) == ("trusted", "0")
    for name in ("summary", "junit", "report"):
        assert (tmp_path / "work space" / job.outputs[name]).is_file()
    assert job.outputs["report"].startswith("my results/")
    (note,) = job.annotations
    assert note.startswith("::warning::This machine cannot emulate")
    assert "(simulated): as expected" in job.summary
    assert "| capability |" in job.summary
    assert "| met | run | bytes\\_lost | exactly 0 | 0 at " in job.summary
    assert "xychart-beta" in job.summary


def test_a_fall_back_to_simulation_warns_of_bounds_that_are_near(
    runner: Runner, stand_in: StandIn
) -> None:
    near = SCENARIO.replace("qps_in_error: {at_least: 3}", "duration_s: {at_least: 1.9}")
    place, _ = stand_in(0)
    job = runner(near, place=place)
    assert job.status == 0, job.printed
    fallen_back, warning = job.annotations
    assert fallen_back.startswith("::warning::This machine cannot emulate")
    assert warning.startswith("::warning::run: duration_s is near its bound (at least 1.9: 2 ")
    assert "an emulated run may miss it" in job.summary


def test_a_missed_expectation_is_annotated_on_its_line(runner: Runner, stand_in: StandIn) -> None:
    place, _ = stand_in(0)
    job = runner(place=place, simulate="true")
    assert (job.status, job.outputs["exit-status"]) == (1, "1")
    line = SCENARIO.splitlines().index("    qps_in_error: {at_least: 3}") + 1
    (missed,) = job.annotations
    assert missed.startswith(
        f"::error file=mine.yaml,line={line}::run: qps_in_error at least 3: 0 "
    )
    assert "**missed**" in job.summary


def test_inputs_reach_the_run_and_no_shell(
    runner: Runner, stand_in: StandIn, tmp_path: Path
) -> None:
    """Of several runs the outputs are a list and all suites; what an input expects has no line."""
    trap = tmp_path / "trap"
    place, _ = stand_in(0)
    job = runner(
        place=place,
        simulate="true",
        repeat="2",
        seed="7",
        set=f"description='$(touch {trap})`touch {trap}`'\nduration=1 s",
        expect="run.bytes_corrupted={at_least: 5}",
    )
    assert not trap.exists()
    assert job.status == 1
    own = [
        annotation for annotation in job.annotations if "bytes_corrupted at least 5" in annotation
    ]
    assert [one[: one.index("::", 2)] for one in own] == ["::error", "::error"]
    assert len(job.annotations) == 4
    workspace = tmp_path / "work space"
    assert {
        run["seed"] for run in json.loads((workspace / job.outputs["summary"]).read_text())["done"]
    } == {7, 8}
    suites = ET.parse(workspace / job.outputs["junit"]).getroot()  # noqa: S314 - our own
    assert [suite.get("name", "")[-8:] for suite in suites] == [", seed 7", ", seed 8"]
    assert suites.get("failures") == "4"


def test_wrong_input_is_named(runner: Runner, stand_in: StandIn) -> None:
    place, _ = stand_in(0)
    job = runner(place=place, retries="often")
    assert job.status == ExitStatus.WRONG_INPUT
    assert any(
        "::error::retries: found often, expected a whole number" in a for a in job.annotations
    )
    job = runner(place=place, retries="9" * 5000)
    assert job.status == ExitStatus.WRONG_INPUT
    job = runner(place=place, simulate="true", set="transport.nothing=1")
    assert (job.status, job.outputs["exit-status"]) == (2, "2")
    assert any("nothing" in annotation for annotation in job.annotations)


@pytest.mark.parametrize(("untrusted", "status"), [("warn", 0), ("fail", 4)])
def test_an_untrusted_run_is_repeated_and_then_warns_or_fails(
    runner: Runner, stand_in: StandIn, untrusted: str, status: int
) -> None:
    place, calls = stand_in(4)
    job = runner(place=place, able="true", retries="1", untrusted=untrusted)
    runs = [call for call in calls.read_text().splitlines() if call.startswith("run mine.yaml ")]
    assert len(runs) == 2
    assert all(("--require-trusted" in call) is (untrusted == "fail") for call in runs)
    assert (job.status, job.outputs["exit-status"]) == (status, "4")
    level = "warning" if status == 0 else "error"
    assert f"::{level}::mine.yaml: the run cannot be trusted, after 2 tries" in job.annotations


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_code_of_a_file_is_executed_where_an_input_says_so(
    runner: Runner, stand_in: StandIn, allowed: str
) -> None:
    place, calls = stand_in(0)
    runner(place=place, able="true", **{"allow-code": allowed})
    (run,) = (call for call in calls.read_text().splitlines() if call.startswith("run mine.yaml "))
    assert ("--allow-code" in run) is (allowed == "true")


def test_a_failed_run_is_never_repeated(runner: Runner, stand_in: StandIn) -> None:
    place, calls = stand_in(1)
    job = runner(place=place, able="true", retries="2")
    assert calls.read_text().count("run mine.yaml ") == 1
    assert (job.status, job.outputs["exit-status"]) == (1, "1")


def test_a_crash_is_neither_repeated_nor_forgiven(runner: Runner, stand_in: StandIn) -> None:
    place, calls = stand_in(ExitStatus.CRASHED)
    job = runner(place=place, able="true", retries="2", untrusted="warn")
    assert calls.read_text().count("run mine.yaml ") == 1
    assert (job.status, job.outputs["exit-status"]) == (5, "5")
    assert "mine.yaml: the testbed crashed" in job.summary


def test_no_simulation_makes_up_for_a_doctor_that_crashes(
    runner: Runner, stand_in: StandIn
) -> None:
    place, calls = stand_in(0)
    text = f'#!/bin/sh\necho "$*" >>"{calls}"\necho "error: KeyError: 0" >&2\nexit 5\n'
    (place / ".venv/bin/testbed").write_text(text)
    job = runner(place=place)
    assert job.status == ExitStatus.CRASHED
    assert calls.read_text() == "doctor --ci\n"
    assert job.annotations == ["::error::error: KeyError: 0"]


def test_a_run_of_several_that_crashes_is_annotated(runner: Runner, stand_in: StandIn) -> None:
    """Beside the others, whose figures are shown all the same."""
    place, _ = stand_in(ExitStatus.CRASHED)
    stub = place / ".venv/bin/testbed"
    edit = r""" | sed '0,/"error": null/s//"error": "exit status 5: KeyError: 0"/'"""
    stub.write_text(stub.read_text().replace('"${@:2}";', f'"${{@:2}}"{edit};'))
    job = runner(
        SCENARIO.replace("at_least: 3", "at_most: 3"), place=place, able="true", repeat="2"
    )
    assert (job.status, job.outputs["exit-status"], job.outputs["verdict"]) == (5, "5", "invalid")
    assert job.annotations == ["::error::short, seed 1: exit status 5: KeyError: 0"]
    assert "seed 1: exit status 5: KeyError: 0" in job.summary
    assert "seed 2" in job.summary


@pytest.mark.parametrize(("status", "called"), [(0, ("sudo", "-n", "--")), (1, ())])
def test_a_runner_that_gives_no_root_is_not_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, called: tuple[str, ...]
) -> None:
    """Without it the doctor says that nothing can be emulated, and the run is simulated."""
    (tmp_path / "sudo").write_text(f"#!/bin/sh\nexit {status}\n")
    (tmp_path / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert runpy.run_path(str(ROOT / "scripts/ci.py"))["_sudo"]() == called


@pytest.mark.parametrize("key", ["scenario", "results"])
def test_an_option_is_no_value(runner: Runner, stand_in: StandIn, key: str) -> None:
    """`testbed simulate --help` would succeed."""
    place, _ = stand_in(0)
    job = runner(place=place, simulate="true", **{key: "--help"})
    assert job.status == ExitStatus.WRONG_INPUT
    (note,) = job.annotations
    assert note.startswith(f"::error::{key}: found --help, expected a name or a path")


def test_the_template_for_gitlab_keeps_what_counts(
    tmp_path: Path,
) -> None:
    """Its artifacts are where the results go; what was repeated is not in the one JUnit file."""
    artifacts = yaml.safe_load((ROOT / "scripts/gitlab.yml").read_text())[".mrc-testbed"][
        "artifacts"
    ]
    assert artifacts["paths"] == ["$TESTBED_RESULTS/"]
    assert artifacts["reports"]["junit"] == "$TESTBED_RESULTS/junit.xml"
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    inputs = {"SCENARIO": "mine.yaml", "RESULTS": "my results", "SIMULATE": "true"}
    done = completed(
        [sys.executable, str(ROOT / "scripts/ci.py"), "run"],
        cwd=tmp_path,
        env={
            **{name: text for name, text in os.environ.items() if not name.startswith("GITHUB_")},
            **{f"TESTBED_{name}": text for name, text in inputs.items()},
        },
    )
    assert done.returncode == ExitStatus.FAILED, done.stderr
    kept = ET.parse(tmp_path / "my results/junit.xml").getroot()  # noqa: S314 - our own
    assert kept.get("failures") == "1"


def test_commands_are_escaped_limited_and_the_summary_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As GitHub requires: ten annotations, and a summary of less than 1 MiB."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    ci = runpy.run_path(str(ROOT / "scripts/ci.py"))
    for _ in range(12):
        ci["annotate"]("error", "100%\nof: a, b", tmp_path / "a,b:c.yaml", 3)
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert commands == ["::error file=a%2Cb%3Ac.yaml,line=3::100%25%0Aof: a, b"] * 10
    ci["annotate"]("error", "::error::injected\n  ::add-mask::x ##[error]y")
    assert capsys.readouterr().out == ": :error::injected\n  : :add-mask::x # #[error]y\n"
    ci["write_summary"](["first\n", "é" * 600_000, "last\n"])
    written = (tmp_path / "summary").read_bytes()
    assert len(written) < 900_000
    assert b"first" in written
    assert b"last" in written
    assert b"1 parts are left out" in written


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.github-actions", "action.yml"),
        ("vendor.github-workflows", ".github/workflows/ci.yml"),
        ("vendor.gitlab-ci", "scripts/gitlab.yml"),
    ],
)
def test_what_ci_systems_read_is_valid(schema: str, file: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, file]
    done = completed(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_zizmor_finds_nothing() -> None:
    zizmor = Path(sys.executable).with_name("zizmor")
    command = [
        str(zizmor),
        "--offline",
        "--no-progress",
        "--strict-collection",
        "action.yml",
        ".github/workflows",
    ]
    done = completed(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
