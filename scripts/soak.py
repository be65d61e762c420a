"""`make soak`: every fault for longer, then every shipped scenario on the fabric, and a table.

With names, only these parts: `faults`, and scenarios. No part that fails ends the others. Runs that
cannot be trusted are made again when all have been made once, while there is time, the shortest
first; the runs of ten minutes (MUST_BE_TRUSTED) also if they are only degraded. All parts once take
forty minutes, twenty of which are those of `chaos-long` and `clustermapper-long`. The table is also
in RESULTS/soak.md, and in RESULTS/soak.json for programs. A soak that was interrupted is resumed by
the same command, as long as the code is the same; one that was finished begins anew. Exit status: 0
all was as expected, 1 something was not, or could not be trusted, 2 wrong arguments.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from testbed.campaign.budget import RetryPolicy
from testbed.campaign.engine import CampaignEngine
from testbed.campaign.job import JobRecord
from testbed.campaign.plan import PlannedRun, planned_run
from testbed.campaign.store import Store
from testbed.cli.fitting import capacities_of, keep_slower_out
from testbed.cli.placing import executor_at
from testbed.experiment.capacity import Capacity, load_capacity
from testbed.files.scenarios import load_scenario, nominal
from testbed.model.errors import ExitStatus, TestbedError, did_you_mean
from testbed.model.run_files.layout import SUMMARY
from testbed.model.scenario import Scenario
from testbed.results.code_version import code_version
from testbed.results.run_directory import RunDirectory

ROOT = Path(__file__).parents[1]
TESTBED = Path(sys.executable).with_name("testbed")
MATRIX = "faults"
MATRIX_TESTS = ("-m", "pytest", "-q", "tests/controller/test_matrix.py")

MUST_BE_TRUSTED = frozenset({"chaos-long", "clustermapper-long"})
"""They show that nothing leaks and nobody is accused, for which the machine must do nothing else.
Of the others a degraded run is enough."""

LASTING_MIN = 45
"""How long a soak may take with runs that are made again; each part is run once all the same."""

TIMEOUT_S = 30 * 60
"""A part that takes longer is given up."""

HEADINGS = ("", "tries", "seconds", "verdict", "bytes sent", "lost", "in error", "growth", "why")
FAULT_HEADINGS = (
    "scenario",
    "faults",
    "first EV out, RTT",
    "stall, RTT",
    "recovery, RTT",
    "packets lost",
    "lost after detection",
)
SCREEN = "{:24} {:>5} {:>7} {:10} {:>14} {:>6} {:>8} {:>7}  {}"


@dataclass(frozen=True, slots=True)
class Part:
    """How one part of the soak went.

    Attributes:
        name: a scenario's, or MATRIX.
        fine: whether all was as expected, in a run that can be trusted as far as it must.
        tries: how often it was run; more than once if it could not be trusted before.
        seconds: how long the last try took.
        verdict: that of the last try.
        why: what was not as expected, and why a run is not trusted.
        disturbed: whether the machine disturbed it so much that it shows too little.
        bytes_sent: payload.
        bytes_damaged: payload lost or corrupted.
        qps_in_error: flows of which a message failed.
        growth: how much the memory of the process that grew most did; None if not measured.
        code: the version of the code that was tested.
        faults: of a scenario with faults of links: how many, and the worst effects of any, as a row
            of FAULT_HEADINGS.
    """

    name: str
    fine: bool
    tries: int
    seconds: int
    verdict: str
    why: str
    disturbed: bool = False
    bytes_sent: int | None = None
    bytes_damaged: int | None = None
    qps_in_error: int | None = None
    growth: float | None = None
    code: str = ""
    faults: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """As a row of the table."""
        counts = (self.bytes_sent, self.bytes_damaged, self.qps_in_error)
        shown = ("" if count is None else f"{count:,}" for count in counts)
        growth = "" if self.growth is None else f"{self.growth:.1%}"
        return (
            self.name,
            f"{self.tries}",
            f"{self.seconds}",
            self.verdict,
            *shown,
            growth,
            self.why,
        )


class Soak:
    """A soak that is under way: its parts so far, and which runs are made again."""

    def __init__(self, directory: Path, names: list[str]) -> None:
        """Begin, or resume an interrupted soak of the same parts and the same code."""
        self._directory, self._names = directory, names
        self.parts, self.began = _interrupted(directory, names)

    def add(self, part: Part) -> None:
        """Add a part, or replace it after another try."""
        self.parts[part.name] = part
        self.write()
        _print_row(part.cells)

    def add_run(self, planned: PlannedRun, record: JobRecord) -> None:
        """Add a scenario's run that has ended."""
        before = self.parts.get(planned.job.name)
        tries = before.tries + 1 if before else 1
        self.add(_part(planned.job.name, record, tries, self._directory))

    def write(self, *, over: bool = False) -> None:
        """Write `soak.md` and `soak.json`."""
        parts = self.parts.values()
        content: dict[str, Any] = {"wanted": self._names, "over": over}
        content["began"] = self.began.isoformat()
        content["done"] = [asdict(part) for part in parts]
        tables = [_table(HEADINGS, [part.cells for part in parts])]
        if faults := [(part.name, *part.faults) for part in parts if part.faults]:
            tables.append(_table(FAULT_HEADINGS, faults))
        place = RunDirectory(self._directory)
        place.write("soak.md", "\n".join(tables))
        place.write("soak.json", json.dumps(content, indent=2) + "\n")


@dataclass(frozen=True, kw_only=True)
class SoakPolicy(RetryPolicy):
    """Runs that were disturbed are made again, at the same dilation, the shortest first."""

    parts: Mapping[str, Part]

    def may_improve(self, planned: PlannedRun, _record: JobRecord | None, _store: Store) -> bool:
        """Whether the run was disturbed, and may be tried again."""
        part = self.parts[planned.job.name]
        return part.disturbed and part.tries < len(self.factors)

    def urgency(self, planned: PlannedRun, _store: Store) -> float:
        """The shorter the run, the more urgent."""
        return -planned.expected_s()


def main() -> int:
    """Run all parts in turn, then again what was disturbed; print how it went."""
    began = datetime.now().astimezone()
    arguments = _arguments()
    directory, names = Path(arguments.results), arguments.parts
    directory.mkdir(parents=True, exist_ok=True)
    soak = Soak(directory, names)
    soak.write()
    _measure_machine()
    for cells in (HEADINGS, *(part.cells for part in soak.parts.values())):
        _print_row(cells)
    if MATRIX in names and MATRIX not in soak.parts:
        soak.add(_matrix(directory))
    passed_s = (datetime.now().astimezone() - began).total_seconds()
    policy = SoakPolicy(
        seconds=arguments.minutes * 60 - passed_s,
        factors=(1.0,) * arguments.tries,
        stop_if_late=False,
        parts=soak.parts,
    )
    store = Store(directory, soak.began, exclusive=False)
    first = next((name for name in names if name != MATRIX), MATRIX)
    with executor_at(arguments.on, directory, {"emulated": first}) as executor:
        machines = capacities_of(executor)
        planned = [_planned(name, machines) for name in names if name != MATRIX]
        keep_slower_out(executor, planned)
        for run in planned:  # made by a worker after the command was killed
            if run.job.name not in soak.parts and (record := store.record(run)) is not None:
                soak.add_run(run, record)
        finished = [run for run in planned if run.job.name in soak.parts]
        engine = CampaignEngine(store, executor, lambda *_: None, policy, soak.add_run)
        engine.execute(
            [run for run in planned if run not in finished],
            [run for run in finished if policy.may_improve(run, None, store)],
        )
    soak.write(over=True)
    wrong = [name for name, part in soak.parts.items() if not part.fine]
    result = f"not as expected, or not trusted: {', '.join(wrong)}" if wrong else "all as expected"
    sys.stdout.write(f"{result}; table: {directory / 'soak.md'}\n")
    return 1 if wrong else 0


def _planned(name: str, machines: tuple[Capacity, ...] | None) -> PlannedRun:
    """The run of a scenario on these machines; None: on this one."""
    here = load_capacity() if machines is None else None
    capacities = machines or (() if here is None else (here,))

    def dilation(scenario: Scenario) -> float:
        """That for `auto`: the smallest that all of them carry."""
        fitting = (capacity.fitting_dilation(scenario) for capacity in capacities)
        return max(fitting, default=nominal(scenario))

    planned = planned_run(load_scenario(name, dilation), "emulated", name, name=name)
    return replace(planned, job=replace(planned.job, timeout_s=TIMEOUT_S))


def _arguments() -> argparse.Namespace:
    """The command line; a name that is no part ends it with status 2."""
    available = [MATRIX, *sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))]
    parser = argparse.ArgumentParser(prog="make soak", description="Try everything for longer.")
    parser.add_argument("results", help="directory for the runs and the table")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(available)}")
    parser.add_argument(
        "--tries",
        type=int,
        choices=range(1, 10),
        default=3,
        metavar="N",
        help="how often a run that cannot be trusted is made at most (default: 3)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=LASTING_MIN,
        metavar="N",
        help=f"no run is made again that would end later than this (default: {LASTING_MIN})",
    )
    parser.add_argument(
        "--on",
        metavar="PLACE",
        help="where scenarios run, as for testbed run",
    )
    arguments = parser.parse_intermixed_args()
    arguments.parts = arguments.parts or available
    for name in arguments.parts:
        if name not in available:
            parser.error(
                f"no part is called {name}; {did_you_mean(name, available) or 'see --help'}"
            )
    return arguments


def _interrupted(directory: Path, names: list[str]) -> tuple[dict[str, Part], datetime]:
    """The parts of an interrupted soak of these names by this code, and when it began; or none."""
    file, now = directory / "soak.json", datetime.now().astimezone()
    content = json.loads(file.read_text()) if file.is_file() else {}
    if content.get("wanted") != names or content.get("over", True):
        return {}, now
    parts = [part for part in content["done"] if part.get("code") == code_version()]
    began = datetime.fromisoformat(content.get("began", now.isoformat()))
    return {part["name"]: Part(**part) for part in parts}, began


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _measure_machine() -> None:
    """Measure what the machine carries: an old figure may have runs refused, or made too fast.

    If that fails, every run will report the reason.
    """
    status, _, errors = _run([str(TESTBED), "doctor", "--measure"])
    if status != ExitStatus.AS_EXPECTED:
        sys.stderr.write(errors)


def _matrix(directory: Path) -> Part:
    """Every kind of fault on every target, a second each; the output of a failure is kept."""
    began = time.monotonic()
    status, output, errors = _run([sys.executable, *MATRIX_TESTS], {"TESTBED_SOAK": "1"})
    fine = status == ExitStatus.AS_EXPECTED
    why = _last_line(output or errors)
    if not fine:
        log = directory / "soak-faults.log"
        log.write_text(output + errors)
        why = f"{why}: see {log}"
    seconds, verdict = round(time.monotonic() - began), "passed" if fine else "FAILED"
    return Part(MATRIX, fine, 1, seconds, verdict, why, code=code_version())


def _part(name: str, record: JobRecord, tries: int, directory: Path) -> Part:
    """How a scenario's run went."""
    part = Part(name, False, tries, round(record.seconds), "FAILED", "", code=code_version())
    if record.run is None:
        disturbed = record.status == ExitStatus.UNTRUSTED
        return replace(part, why=_error(record.message), disturbed=disturbed)
    summary = json.loads((directory / record.run / SUMMARY).read_text())
    disturbed = _is_disturbed(name, record.status, summary["verdict"])
    integrity = summary["integrity"]
    failed = [check for check in summary["expectations"] if not check["holds"]]
    reasons = [
        f"{check['figure']} {_shown(check['value'])}, not {check['bound']}" for check in failed
    ]
    return replace(
        part,
        fine=record.status == ExitStatus.AS_EXPECTED and not disturbed,
        verdict=summary["verdict"],
        why="; ".join([*reasons, *summary["reasons"]]),
        disturbed=disturbed,
        bytes_sent=integrity["bytes_sent"],
        bytes_damaged=integrity["bytes_lost"] + integrity["bytes_corrupted"],
        qps_in_error=summary["qps_in_error"],
        growth=max((process["growth"] for process in summary["memory"]), default=None),
        faults=_worst(summary["faults"]),
    )


def _worst(faults: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The worst effects that faults of links had on the flows that they affected."""
    effective = [fault for fault in faults if fault["flows_affected"] and ">" in fault["places"][0]]
    if not effective:
        return ()
    times = (
        _most(effective, f"{figure}_rtt", "{:.2f}") for figure in ("detection", "stall", "recovery")
    )
    lost = sum(fault["packets_lost"] for fault in effective)
    residual = _most(effective, "residual_loss", "{:.3%}")
    return (f"{len(effective)}", *times, f"{lost:,}", residual)


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _most(faults: Sequence[dict[str, Any]], figure: str, form: str) -> str:
    """The largest value of a figure over the faults that have it, and how many have not."""
    values = [fault[figure] for fault in faults if fault[figure] is not None]
    missing = len(faults) - len(values)
    most = form.format(max(values)) if values else "none"
    return f"{most} (none: {missing})" if values and missing else most


def _is_disturbed(name: str, status: int, verdict: str) -> bool:
    """Whether the machine disturbed a run so much that it shows too little."""
    if status == ExitStatus.AS_EXPECTED:
        return name in MUST_BE_TRUSTED and verdict != "trusted"
    return status == ExitStatus.UNTRUSTED


def _run(
    command: Sequence[str], variables: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit status, output and errors of a command; one that hangs is killed, and fails."""
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=ROOT,
            env=os.environ | dict(variables or {}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return ExitStatus.FAILED, "", f"did not end within {TIMEOUT_S // 60} min, and was killed"
    return done.returncode, done.stdout, done.stderr


def _error(text: str) -> str:
    """The error that a command ended with, its remedy included; or else its last line."""
    error = text.rpartition("error: ")[2] if "error: " in text else _last_line(text)
    return " ".join(error.split())


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1]


def _print_row(cells: tuple[str, ...]) -> None:
    sys.stdout.write(SCREEN.format(*cells).rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TestbedError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_status)
