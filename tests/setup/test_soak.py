"""`make soak`: tries again what cannot be trusted, goes on whatever fails or breaks it off."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from testbed.model.run_files.layout import SUMMARY
from testbed.model.scenario import Scenario
from testbed.runs.fitting import Machines
from testbed.runs.job import DRAWN, Form, Job, JobRecord
from tests.modules import SCRIPTS, module_at
from tests.runs.test_engine import _made as made

SCENARIOS = Path(__file__).parents[2] / "scenarios"


FAULT = {
    "index": 0,
    "kind": "blackhole",
    "target": "l",
    "places": ["a>b"],
    "actuator": "link",
    "proof": {},
    "flows": [],
    "requested_s": 1.0,
}
"""What each fault of a summary has."""

MEMORY = {"process": "mrc-h0", "early_bytes": 1_000_000, "late_bytes": 1_000_000}


class Commands:
    """Stands for what a soak runs: commands, and runs with these exit statuses, name by name."""

    def __init__(self, directory: Path, statuses: dict[str, Iterator[int]]) -> None:
        self.directory, self.statuses = directory, statuses
        self.verdicts: dict[str, Iterator[str]] = {}
        self.ran: list[str] = []
        self.faults: list[dict[str, object]] = []
        self.hangs = ""
        self.measured = 0
        self.refused = ""

    def __call__(self, command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        if command[1] == "doctor":
            self.measured += 1
            return subprocess.CompletedProcess(command, 0, "", "")
        self.ran.append("faults")
        status = next(self.statuses.get("faults", iter([0])))
        return subprocess.CompletedProcess(command, status, "2 passed", "")

    def slots(self, _form: Form) -> int:
        return 1

    def stop(self) -> None:
        """Nothing is under way."""

    def submit(self, job: Job) -> "Future[JobRecord]":
        future = Future[JobRecord]()
        future.set_result(self._record(job))
        return future

    def _record(self, job: Job) -> JobRecord:
        assert job.how == DRAWN
        self.ran.append(job.name)
        if job.name == self.hangs:
            return JobRecord(1, 0.0, message="not done after 30 min")
        if job.name == self.refused:
            return JobRecord(3, 0.0, message="8 flows\n  b")
        status = next(self.statuses.get(job.name, iter([0])), None)
        if status is None:
            raise KeyboardInterrupt
        verdicts = self.verdicts.get(job.name, iter(["invalid" if status else "trusted"]))
        summary = {
            "scenario": job.name,
            "description": "",
            "run": job.name,
            "seed": 1,
            "dilation": 10_000,
            "flows": [],
            "integrity": {
                "bytes_sent": 1000,
                "bytes_verified": 1000,
                "bytes_lost": 0,
                "bytes_corrupted": 0,
            },
            "verdict": next(verdicts),
            "expectations": [],
            "reasons": [] if not status else ["the machine was late"],
            "qps_in_error": 0,
            "memory": [MEMORY | {"growth": growth} for growth in (0.01, 0.02)],
            "faults": [FAULT | fault for fault in self.faults],
            "duration_s": 1.0,
            "base_rtt_us": 130.0,
            "base_rtt_real_us": 13.0,
        }
        run = f"{job.folder}/run-{len(self.ran)}"  # not one that the store finds
        (self.directory / run).mkdir(parents=True, exist_ok=True)
        (self.directory / run / SUMMARY).write_text(json.dumps(summary))
        return JobRecord(status, 0.0, run)


Soak = Callable[..., tuple[int, Commands]]


@pytest.fixture
def soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Soak:
    """Run a soak of these parts with these exit statuses."""
    monkeypatch.syspath_prepend(SCRIPTS)
    module = module_at(SCRIPTS / "soak.py")

    def run(
        *names: str,
        code: str = "one",
        hangs: str = "",
        refused: str = "",
        did: Sequence[dict[str, object]] = (),
        verdicts: dict[str, list[str]] | None = None,
        **statuses: list[int],
    ) -> tuple[int, Commands]:
        commands = Commands(tmp_path, {name: iter(found) for name, found in statuses.items()})
        commands.verdicts = {name: iter(found) for name, found in (verdicts or {}).items()}
        commands.hangs, commands.refused = hangs, refused
        commands.faults = [*did]
        monkeypatch.setattr(module.subprocess, "run", commands)
        monkeypatch.setattr(module, "executor_at", lambda *_: nullcontext(commands))
        monkeypatch.setattr(module, "code_version", lambda: code)
        monkeypatch.setattr(sys, "argv", ["soak.py", str(tmp_path), *names])
        return module.main(), commands

    return run


def test_what_cannot_be_trusted_is_tried_three_times(soak: Soak, tmp_path: Path) -> None:
    """When all have been run once: a busy hour may be over by then."""
    status, commands = soak("healthy", "chaos", "incast", healthy=[4, 0], chaos=[4, 4, 4, 0])
    assert commands.ran == ["healthy", "chaos", "incast", "healthy", "chaos", "chaos"]
    assert status == 1
    table = (tmp_path / "soak.md").read_text()
    assert "| healthy | 2 |" in table
    assert "the machine was late" in table
    assert "2.0%" in table
    parts = json.loads((tmp_path / "soak.json").read_text())["done"]
    fine = {part["name"]: part["fine"] for part in parts}
    assert fine == {"healthy": True, "chaos": False, "incast": True}


def test_it_is_tried_as_often_as_asked_for(soak: Soak) -> None:
    status, commands = soak("--tries", "1", "healthy", "chaos", healthy=[4, 0])
    assert (status, commands.ran) == (1, ["healthy", "chaos"])


def test_nothing_is_tried_again_when_time_is_over(soak: Soak) -> None:
    """But all is run once."""
    status, commands = soak("--minutes", "0", "healthy", "chaos", healthy=[4, 0])
    assert (status, commands.ran) == (1, ["healthy", "chaos"])


def test_a_part_that_does_not_end_fails_and_ends_no_other(soak: Soak, tmp_path: Path) -> None:
    status, commands = soak("healthy", "chaos", hangs="healthy")
    assert (status, commands.ran) == (1, ["healthy", "chaos"])
    assert "| FAILED |  |  |  |  | not done after 30 min" in (tmp_path / "soak.md").read_text()


def test_what_is_refused_says_why(soak: Soak, tmp_path: Path) -> None:
    """And the machine is measured anew before, so that nothing is refused for an old figure."""
    status, commands = soak("chaos", "healthy", refused="chaos")
    assert (status, commands.ran, commands.measured) == (1, ["chaos", "healthy"], 1)
    assert "| FAILED |  |  |  |  | 8 flows b |" in (tmp_path / "soak.md").read_text()


def test_the_last_line_says_what_was_wrong(soak: Soak, capsys: pytest.CaptureFixture[str]) -> None:
    soak("healthy", "chaos", chaos=[1])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("not as expected, or not trusted: chaos; table: ")
    soak("healthy")
    assert "\nall as expected; table: " in capsys.readouterr().out


def test_without_names_it_does_everything(soak: Soak) -> None:
    status, commands = soak()
    assert status == 0
    assert commands.ran[0] == "faults"
    assert sorted(commands.ran[1:]) == sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def test_a_part_that_is_not_there_is_refused(
    soak: Soak, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        soak("chaos", "caos-long")
    assert ended.value.code == 2
    assert "no part is called caos-long; did you mean chaos-long?" in capsys.readouterr().err


def test_ten_minutes_count_only_if_trusted(soak: Soak, tmp_path: Path) -> None:
    """A degraded run ends with status 0, too: of the others that will do."""
    verdicts = {"healthy": ["degraded"], "chaos-long": ["degraded", "trusted"]}
    status, commands = soak("healthy", "chaos-long", verdicts=verdicts)
    assert (status, commands.ran) == (0, ["healthy", "chaos-long", "chaos-long"])
    assert "| healthy | 1 | 0 | degraded |" in (tmp_path / "soak.md").read_text()
    verdicts = {"clustermapper-long": ["degraded"] * 3}
    status, commands = soak("clustermapper-long", verdicts=verdicts)
    assert (status, commands.ran) == (1, ["clustermapper-long"] * 3)
    assert "| clustermapper-long | 3 | 0 | degraded |" in (tmp_path / "soak.md").read_text()


def test_what_failed_is_not_tried_again(soak: Soak) -> None:
    status, commands = soak("faults", "chaos", faults=[1], chaos=[1, 0])
    assert (status, commands.ran) == (1, ["faults", "chaos"])


def test_a_soak_that_was_broken_off_goes_on(soak: Soak) -> None:
    names = ("healthy", "chaos", "incast")
    with pytest.raises(KeyboardInterrupt):
        soak(*names, chaos=[])
    status, commands = soak(*names, incast=[4, 4, 0])
    assert (status, commands.ran) == (0, ["chaos", "incast", "incast", "incast"])
    status, commands = soak(*names)
    assert commands.ran == [*names], "one that came to its end begins anew"


def test_progress_says_how_many_runs_are_done_and_what_time_is_left(
    soak: Soak, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs that were made before a soak was broken off are counted."""
    names = ("healthy", "chaos", "incast")
    with pytest.raises(KeyboardInterrupt):
        soak(*names, chaos=[])
    assert "\nemulated run 2/3 (about " in capsys.readouterr().err
    soak(*names)
    progress = capsys.readouterr().err
    assert progress.startswith("emulated run 2/3 (about ")
    assert "left; 1 done, 1 trusted): incast\n" in progress


def test_what_other_code_did_does_not_count(soak: Soak) -> None:
    with pytest.raises(KeyboardInterrupt):
        soak("healthy", "chaos", chaos=[])
    _, commands = soak("healthy", "chaos", code="two")
    assert commands.ran == ["healthy", "chaos"]


def test_the_worst_that_faults_did_is_told(soak: Soak, tmp_path: Path) -> None:
    def time(name: str, value: float | None) -> dict[str, float | None]:
        return {f"{name}_{form}": value for form in ("ms", "rtt", "real_us")}

    did = {**time("detection", 1.0), **time("stall", 1.3), **time("recovery", 2.0)}
    link = {"places": ["a>b"], "flows_affected": 2, "residual_loss": 0.001, "packets_lost": 30}
    link |= did
    unnoticed = {**link, **time("detection", None), **time("stall", 1.5), "residual_loss": None}
    faults = [
        link,
        unnoticed,
        {**link, "flows_affected": 0, "stall_rtt": 9.0},
        {**link, "places": ["h3"], "stall_rtt": 9.0},
    ]
    soak("rolling-failures", did=faults)
    last = (tmp_path / "soak.md").read_text().splitlines()[-1]
    row = "rolling-failures | 2 | 1.00 (none: 1) | 1.50 | 2.00 | 60 | 0.100% (none: 1)"
    assert last == f"| {row} |"


def test_a_run_that_a_worker_finished_after_the_command_was_killed_is_not_made_again(
    soak: Soak, tmp_path: Path
) -> None:
    planned = sys.modules["soak"]._planned("healthy", None)
    began = {"wanted": ["healthy", "chaos"], "over": False, "began": "2025-12-31T00:00:00+00:00"}
    (tmp_path / "soak.json").write_text(json.dumps(began | {"done": []}))
    made(planned, tmp_path, 1, "trusted")
    _, commands = soak("healthy", "chaos")
    assert commands.ran == ["chaos"]
    parts = json.loads((tmp_path / "soak.json").read_text())["done"]
    assert {part["name"]: part["verdict"] for part in parts}["healthy"] == "trusted"


def test_a_repeat_that_a_worker_finished_after_the_command_was_killed_is_not_made_again(
    soak: Soak, tmp_path: Path
) -> None:
    """It counts as a try, the first of which is known."""
    module = sys.modules["soak"]
    planned = module._planned("healthy", None)
    first = made(planned, tmp_path, 1, "invalid")
    late = module.Part("healthy", False, 1, 9, "invalid", "", True, code="one", runs=(first,))
    content = {"wanted": ["healthy", "chaos"], "over": False, "began": "2025-12-31T00:00:00+00:00"}
    (tmp_path / "soak.json").write_text(json.dumps(content | {"done": [asdict(late)]}))
    second = made(planned, tmp_path, 2, "trusted")
    _, commands = soak("healthy", "chaos")
    assert commands.ran == ["chaos"]
    healthy, _ = json.loads((tmp_path / "soak.json").read_text())["done"]
    assert (healthy["tries"], healthy["verdict"]) == (2, "trusted")
    assert healthy["runs"] == [first, second]


@dataclass(frozen=True)
class Machine:
    """Carries the fabric of one scenario at this dilation, and all others at 10,000."""

    scenario: str
    least: int

    def fitting_dilation(self, scenario: Scenario) -> int:
        return self.least if scenario.name == self.scenario else 10_000


@pytest.mark.usefixtures("soak")
def test_one_dilation_for_all_scenarios_with_auto_and_all_machines() -> None:
    module = sys.modules["soak"]
    carry = (Machine("matrix", 70_000), Machine("alltoall", 90_000))
    machines = Machines(lambda: cast("Any", carry))
    chosen = module._dilation_for_auto(["matrix", "healthy", "alltoall"], machines)
    assert chosen == 90_000
    planned = {name: module._planned(name, chosen) for name in ("matrix", "alltoall", "healthy")}
    dilations = {name: run.scenario.topology.dilation for name, run in planned.items()}
    assert dilations == {"matrix": 90_000, "alltoall": 90_000, "healthy": 10_000}
    assert module._dilation_for_auto(["healthy"], machines) is None


def test_a_soak_that_goes_on_keeps_its_dilation(
    soak: Soak, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["soak"]
    monkeypatch.setattr(module, "_dilation_for_auto", lambda *_: 50_000)
    with pytest.raises(KeyboardInterrupt):
        soak("matrix", "alltoall", alltoall=[])
    monkeypatch.setattr(module, "_dilation_for_auto", lambda *_: 80_000)
    soak("matrix", "alltoall")
    assert json.loads((tmp_path / "soak.json").read_text())["dilation"] == 50_000


def test_a_soak_that_is_killed_before_a_run_has_ended_keeps_its_dilation(
    soak: Soak, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["soak"]
    monkeypatch.setattr(module, "_dilation_for_auto", lambda *_: 50_000)
    with pytest.raises(KeyboardInterrupt):
        soak("matrix", matrix=[])
    assert json.loads((tmp_path / "soak.json").read_text())["dilation"] == 50_000
