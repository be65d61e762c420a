"""`make soak`: every fault for longer, then every shipped scenario on the fabric, and a table.

With names, only these parts: `faults`, and scenarios. No part that fails ends the others. Runs that
cannot be trusted are made again when all have been made once, while there is time, the shortest
first; the runs of ten minutes (MUST_BE_TRUSTED) also if they are only degraded. All parts once take
forty minutes, twenty of which are those of `chaos-long` and `clustermapper-long`. The table is also
in RESULTS/soak.md, and in RESULTS/soak.json for programs; stderr says how far it is. A soak that
was interrupted is resumed by the same command, as long as the code is the same; one that was
finished begins anew. Exit status: 0 all was as expected, 1 something was not, or could not be
trusted, 2 wrong arguments.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from soak_parts import FAULT_HEADINGS, HEADINGS, SCREEN, Part, last_line, part_of_run, table_of

from testbed import interpreter
from testbed.model.errors import ExitStatus, MachineError, TestbedError, did_you_mean
from testbed.model.files.scenarios import load_scenario, nominal
from testbed.model.progress import where_it_changes
from testbed.results.code_version import code_version
from testbed.results.run_directory import RunDirectory
from testbed.runs.fitting import Machines, with_fitting_dilation
from testbed.runs.job import DRAWN, JobRecord, PlannedRun, planned_run
from testbed.runs.many import RetryPolicy, many
from testbed.runs.places import executor_at
from testbed.runs.store import Store

ROOT = Path(__file__).parents[1]
TESTBED = Path(sys.executable).with_name("testbed")
MATRIX = "faults"
MATRIX_TESTS = ("-m", "pytest", "-q", "tests/controller/test_matrix.py")

LASTING_MIN = 45
"""How long a soak may take with runs that are made again; each part is run once all the same."""

TIMEOUT_S = 30 * 60
"""A part that takes longer is given up."""


class Soak:
    """A soak that is under way: its parts so far, and which runs are made again.

    Attributes:
        parts: those that have ended, by name.
        began: when it began.
        dilation: the one for `dilation: auto` in all its scenarios; None: not chosen yet.
    """

    def __init__(self, directory: Path, names: list[str]) -> None:
        """Begin, or resume an interrupted soak of the same parts and the same code."""
        self._directory, self._names = directory, names
        self.parts: dict[str, Part] = {}
        self.began = datetime.now().astimezone()
        self.dilation: float | None = None
        self._resume()

    def add(self, part: Part) -> None:
        """Add a part, or replace it after another try."""
        self.parts[part.name] = replace(part, code=code_version())
        self.write()
        _print_row(part.cells)

    def add_run(self, planned: PlannedRun, record: JobRecord) -> None:
        """Add a scenario's run that has ended, unless it is known."""
        name = planned.job.name
        before = self.parts.get(name)
        tries, runs = (before.tries, before.runs) if before else (0, ())
        if record.run in runs:
            return
        part = part_of_run(name, record, tries + 1, self._directory)
        self.add(replace(part, runs=(*runs, record.run) if record.run else runs))

    def write(self, *, over: bool = False) -> None:
        """Write `soak.md` and `soak.json`."""
        parts = self.parts.values()
        content: dict[str, Any] = {"wanted": self._names, "over": over}
        content["began"] = self.began.isoformat()
        content["dilation"] = self.dilation
        content["done"] = [asdict(part) for part in parts]
        tables = [table_of(HEADINGS, [part.cells for part in parts])]
        if faults := [(part.name, *part.faults) for part in parts if part.faults]:
            tables.append(table_of(FAULT_HEADINGS, faults))
        place = RunDirectory(self._directory)
        place.write("soak.md", "\n".join(tables))
        place.write("soak.json", json.dumps(content, indent=2) + "\n")

    def _resume(self) -> None:
        """Go on with the soak of these names, if one was interrupted that this code made."""
        file = self._directory / "soak.json"
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if content.get("wanted") != self._names or content.get("over", True):
            return
        parts = [Part(**part) for part in content["done"] if part.get("code") == code_version()]
        self.parts = {part.name: part for part in parts}
        if "began" in content:
            self.began = datetime.fromisoformat(content["began"])
        self.dilation = content.get("dilation")


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
    scenarios = [name for name in names if name != MATRIX]
    with executor_at(None, directory, {}) as executor:
        machines = Machines.here(force=True)
        soak.dilation = soak.dilation or _dilation_for_auto(scenarios, machines)
        soak.write()  # one that is resumed has the same dilation
        planned = [_planned(name, soak.dilation) for name in scenarios]
        for run in planned:  # made after the command was killed
            for record in store.records(run):
                soak.add_run(run, record)
        finished = [run for run in planned if run.job.name in soak.parts]
        progress = where_it_changes(_print_progress)
        many(
            [run for run in planned if run not in finished],
            store,
            pool=executor,
            retry=policy,
            again=[run for run in finished if policy.may_improve(run, None, store)],
            progress=progress,
            on_end=soak.add_run,
            made_before=len(finished),
        )
    soak.write(over=True)
    wrong = [name for name, part in soak.parts.items() if not part.fine]
    result = f"not as expected, or not trusted: {', '.join(wrong)}" if wrong else "all as expected"
    sys.stdout.write(f"{result}; table: {directory / 'soak.md'}\n")
    return 1 if wrong else 0


def _dilation_for_auto(names: Sequence[str], machines: Machines) -> float | None:
    """The one for `dilation: auto`: the smallest at which all machines carry all scenarios.

    None if no scenario has `auto`, or if what this machine carries is not known.
    """
    try:
        _, dilation = with_fitting_dilation(
            lambda dilation: [load_scenario(name, dilation) for name in names], machines
        )
    except MachineError:  # it is not known what this machine carries: each run says so
        return None
    return dilation


def _planned(name: str, dilation: float | None) -> PlannedRun:
    """The run of a scenario with this dilation for `auto`; None: the nominal one."""
    scenario = load_scenario(name, nominal if dilation is None else lambda _: dilation)
    planned = planned_run(scenario, "emulated", name, name=name, how=DRAWN)
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
    arguments = parser.parse_intermixed_args()
    arguments.parts = arguments.parts or available
    for name in arguments.parts:
        if name not in available:
            parser.error(
                f"no part is called {name}; {did_you_mean(name, available) or 'see --help'}"
            )
    return arguments


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
    status, output, errors = _run(interpreter.python(*MATRIX_TESTS), {"TESTBED_SOAK": "1"})
    fine = status == ExitStatus.AS_EXPECTED
    why = last_line(output or errors)
    if not fine:
        log = directory / "soak-faults.log"
        log.write_text(output + errors, encoding="utf-8")
        why = f"{why}: see {log}"
    seconds, verdict = round(time.monotonic() - began), "passed" if fine else "FAILED"
    return Part(MATRIX, fine, 1, seconds, verdict, why)


def _run(
    command: Sequence[str], variables: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit status, output and errors of a command; one that hangs is killed, and fails."""
    try:
        done = interpreter.run(
            command,
            cwd=ROOT,
            env=variables or {},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return ExitStatus.FAILED, "", f"did not end within {TIMEOUT_S // 60} min, and was killed"
    return done.returncode, done.stdout, done.stderr


def _print_progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _print_row(cells: tuple[str, ...]) -> None:
    sys.stdout.write(SCREEN.format(*cells).rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TestbedError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_status)
