"""The wheel in empty environments of the oldest and the newest Python here, by plain pip."""

import json
import os
import shutil
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from testbed.installation import DISTRIBUTION, EMULATION, PROJECT, commit
from testbed.model.errors import ExitStatus
from testbed.results.code_version import code_version
from tests.commands import completed

pytestmark = pytest.mark.install

VERSIONS = range(11, 15)
"""Of Python 3, those that pyproject.toml allows."""

USABLE = f"import sys, ensurepip; sys.exit(not {VERSIONS.start} <= sys.version_info[1])"


def _pythons() -> list[str]:
    """The oldest and the newest Python on the PATH; this one where there is no other."""
    names = [f"python3.{minor}" for minor in VERSIONS]
    found = [name for name in names if shutil.which(name) and _run(name, "-c", USABLE)[0] == 0]
    return sorted({found[0], found[-1]}) if found else [sys.executable]


def _run(*command: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    """Run a command; returns its exit status and all that it printed."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = completed(command, cwd=cwd, env=environment)
    return done.returncode, done.stdout + done.stderr


def _json(printed: str) -> Any:
    """The JSON with which the output of a command begins; messages may follow."""
    return json.JSONDecoder().raw_decode(printed)[0]


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, and an empty directory to call its commands in."""

    path: Path
    directory: Path

    def pip(self, *arguments: str | Path) -> str:
        """Call its pip, which must succeed."""
        status, printed = _run(self.path / "bin/python", "-m", "pip", *arguments)
        assert status == 0, printed
        return printed

    def testbed(self, *arguments: str) -> tuple[int, str]:
        return _run(self.path / "bin/testbed", *arguments, cwd=self.directory)

    def package(self) -> Path:
        (package,) = self.path.glob("lib/python*/site-packages/testbed")
        return package


@pytest.fixture(scope="module", params=_pythons(), ids=lambda python: Path(python).name)
def empty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with pip alone."""
    directory = tmp_path_factory.mktemp("environment")
    environment = Environment(directory / "venv", directory / "leerer Ordner ä")
    environment.directory.mkdir()
    status, printed = _run(request.param, "-m", "venv", environment.path)
    assert status == 0, printed
    return environment


@pytest.fixture(scope="module")
def wheel(empty: Environment) -> Path:
    """The wheel of this checkout, built by the environment's pip."""
    built = empty.path / "wheel"
    empty.pip("wheel", "-q", "--no-deps", "-w", built, PROJECT)
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def base(empty: Environment, wheel: Path) -> Environment:
    """With the wheel, without its extra."""
    empty.pip("install", "-q", wheel)
    return empty


@pytest.fixture(scope="module")
def emulating(base: Environment, wheel: Path) -> Environment:
    """With the extra."""
    base.pip("install", "-q", f"{wheel}[emulate]")
    return base


def test_it_is_for_every_system(wheel: Path) -> None:
    assert wheel.name == f"mrc_testbed-{version(DISTRIBUTION)}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith(".so") and "/c/ready/" not in name]
    assert not [name for name in names if "/tests/" in name]


def test_the_base_needs_nothing_of_the_emulation(base: Environment) -> None:
    installed = {package["name"] for package in _json(base.pip("list", "--format", "json"))}
    assert not installed & set(EMULATION)


def test_it_has_what_a_checkout_has(base: Environment) -> None:
    names = {
        kind: sorted(path.stem for path in (PROJECT / kind).glob("*.yaml"))
        for kind in ("scenarios", "topologies")
    }
    listed = _json(base.testbed("list", "--json")[1])
    assert {kind: [one["name"] for one in found] for kind, found in listed.items()} == names
    for file in (PROJECT / "docs/schema").iterdir():
        (copy,) = base.package().rglob(f"docs/schema/{file.name}")
        assert copy.read_bytes() == file.read_bytes()


def test_it_has_the_labs_without_their_solutions(base: Environment) -> None:
    listed = _json(base.testbed("lab", "list", "--json")[1])
    assert [lab["name"] for lab in listed] == sorted(
        path.parent.name for path in PROJECT.glob("labs/*/lab.yaml")
    )
    (labs,) = base.package().rglob("files_of_checkout/labs")
    assert not [path for path in labs.rglob("*") if path.name in {"solution", "instructor.md"}]
    status, printed = base.testbed("lab", "start", "9")  # which copies documents, too
    assert status == ExitStatus.AS_EXPECTED, printed


def test_its_version_names_the_commit(base: Environment) -> None:
    known = commit()
    expected = "commit unknown" if known is None else f"commit {str(known['commit'])[:12]}"
    status, printed = base.testbed("--version")
    assert (status, printed.startswith(f"testbed {version(DISTRIBUTION)} ({expected}")) == (0, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_it(base: Environment, shell: str) -> None:
    """Commands, options, and the names of scenarios."""
    environment = {
        "_TESTBED_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "testbed simulate link-failure-r",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": "testbed simulate link-failure-r",
        "COMP_CWORD": "2",
    }
    assignments = [f"{name}={value}" for name, value in environment.items()]
    _, printed = _run("env", *assignments, base.path / "bin/testbed")
    assert "link-failure-roce" in printed
    assert "incast" not in printed


DEAD_LINK = """
name: dead-link
topology: clos-4plane
duration: 5 min
workload: {kind: program, command: [unused]}
timeline:
  - {kind: blackhole, target: h0--p0_t0_0, at: 4 s, for: 4 s}
expect:
  run: {bytes_lost: 0, qps_in_error: 0}
"""


@pytest.mark.skipif(shutil.which("ib_write_bw") is None, reason="needs perftest")
def test_the_base_runs_programs_through_a_dead_link_without_root(base: Environment) -> None:
    """Where root tests it, as a process without capabilities, which may get none."""
    script = (
        "if [ $RANK = 0 ]; then exec ib_write_bw -d mrc0 -n 600; fi; "
        "sleep 2; exec ib_write_bw -d mrc0 -n 600 h0"
    )
    place = base.directory / "own"
    place.mkdir()
    file = place / "dead-link.yaml"
    file.write_text(DEAD_LINK, encoding="utf-8")
    command: list[str | Path] = [base.path / "bin/testbed", "device", "-n", "2"]
    command += ["--scenario", file, "--no-figures", "--", "sh", "-c", script]
    if os.geteuid() == 0:
        rights = "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"
        command = ["setpriv", *rights, *command]
    status, printed = _run(*command, cwd=place)
    assert status in (ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED), printed
    (run,) = (place / "results/dead-link").glob("2*")
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert summary["faults"][0]["packets_lost"] > 0
    assert [bound["holds"] for bound in summary["expectations"]] == [True, True]
    assert not any(program["failed"] for program in summary["programs"])


def test_the_base_simulates_reports_and_checks(base: Environment) -> None:
    status, printed = base.testbed("simulate", "link-failure", "--results", "results")
    assert status == ExitStatus.AS_EXPECTED, printed
    (run,) = (base.directory / "results/link-failure").glob("2*")
    assert json.loads((run / "manifest.json").read_text())["code"] == code_version()
    (run / "report.html").unlink()
    for command in (("report", str(run)), ("compare", str(run), str(run)), ("validate", "incast")):
        status, printed = base.testbed(*command)
        assert status == ExitStatus.AS_EXPECTED, printed
    assert (run / "report.html").exists()
    assert base.testbed("figures", "--list")[0] == ExitStatus.AS_EXPECTED
    assert base.testbed("bench", "--list")[0] == ExitStatus.AS_EXPECTED


def test_what_needs_the_emulation_names_the_extra(base: Environment) -> None:
    run = "run", "link-failure"
    for command in (run, (*run, "--force"), ("doctor",), ("shell", "clos-tiny")):
        status, printed = base.testbed(*command)
        assert status == ExitStatus.MACHINE_CANNOT
        assert f"pip install '{DISTRIBUTION}[emulate]'" in printed
    for program in ("write_bw", "write_lat"):
        status, printed = _run(base.path / "bin" / program, cwd=base.directory)
        assert status == ExitStatus.MACHINE_CANNOT
        assert printed.startswith("error: nothing can be emulated here: ")


@pytest.mark.root
def test_with_the_extra_it_emulates(emulating: Environment) -> None:
    """Ryu included, which no pip builds; how fast the machine is does not matter."""
    status, printed = emulating.testbed("doctor", "--json")
    findings = {finding["name"]: finding for finding in _json(printed)["findings"]}
    assert status == ExitStatus.AS_EXPECTED, printed
    assert findings["Ryu"]["ok"]
    assert findings["link model"]["ok"] or not findings["libbpf"]["ok"]
    options = ("--force", "--no-figures", "--results", "emulated")
    slow = ("--set", "topology.dilation=60000")
    status, printed = emulating.testbed("run", "link-failure", *options, *slow)
    assert status in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, printed
    (manifest,) = emulating.directory.glob("emulated/link-failure/2*/manifest.json")
    assert json.loads(manifest.read_text())["packages"]["ryu"] == "4.34"
