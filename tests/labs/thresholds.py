"""Whether the bounds of lab 10 tell a controller from a fixed window, for many students.

    python -m tests.labs.thresholds 200

For each student the starter and the best fixed windows have to fail the task incast-tail, which
counts together with permutation-share, and the solution has to pass both. A student takes about
20 s of CPU; the exit status is 1 if one is wrong.
"""

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.model.files.reading import Document
from testbed.results.analyse import analyse
from testbed.sim import simulate
from testbed.studies.labs.assignment import Assignment
from testbed.studies.labs.authoring import trial_key
from testbed.studies.labs.checking import check
from testbed.studies.labs.evidence import Evidence
from testbed.studies.labs.library import LABS, SOLUTION, START, load_lab

LAB = LABS / "10-congestion-controller"
FILE, RUNS, SCORES = (
    "controller.py",
    ("incast", "permutation"),
    ("permutation-share", "incast-tail"),
)
STARTER, SOLVED = "starter", "solution"

WINDOWS = (0.7, 1.2, 1.3, 8.0)
"""Fixed windows in BDP. Up to 0.7 the incast's tail is short, from 1.2 on the permutation is fast;
8 is more than anything uses."""


def programs() -> dict[str, str]:
    """The source of each controller that is tried, by what it is."""
    starter = (LAB / START / FILE).read_text(encoding="utf-8")
    fixed = {
        f"{window} BDP": starter.replace("10 * path.mtu", f"{window} * path.bdp_bytes")
        for window in WINDOWS
    }
    assert starter not in fixed.values()
    return {STARTER: starter, **fixed, SOLVED: (LAB / SOLUTION / FILE).read_text(encoding="utf-8")}


def scores(student: int, source: str) -> dict[str, tuple[bool, str]]:
    """Whether a controller passes each score of the lab, and with which figure."""
    lab = load_lab(LAB)
    with TemporaryDirectory(prefix="testbed-lab-") as scratch:
        place = Path(scratch)
        (place / FILE).write_text(source, encoding="utf-8")
        assignment = Assignment(lab, trial_key(student), place)
        for run in RUNS:
            (place / run).mkdir()
            simulate(assignment.scenario(run), place / run)
            analyse(place / run, drawn=False)
        evidence = Evidence(assignment, {run: place / run for run in RUNS})
        tasks = {name: lab.lab.task(name) for name in SCORES}
        results = {
            name: check(task, Document(None, {}), evidence) for name, task in tasks.items() if task
        }
    return {name: (result.passed, result.answer) for name, result in results.items()}


def findings(student: int) -> tuple[dict[str, dict[str, tuple[bool, str]]], list[str]]:
    """What each controller gets, and what is wrong with that."""
    found = {name: scores(student, source) for name, source in programs().items()}
    wrong = [
        f"student {student}: {name} passes incast-tail: {got}"
        for name, got in found.items()
        if name != SOLVED and got["incast-tail"][0]
    ]
    wrong += [
        f"student {student}: {STARTER} passes {name}"
        for name, (passed, _) in found[STARTER].items()
        if passed
    ]
    wrong += [
        f"student {student}: {SOLVED} fails {name} with {figure}"
        for name, (passed, figure) in found[SOLVED].items()
        if not passed
    ]
    return found, wrong


def _all(students: int) -> Iterator[list[str]]:
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for student, (found, wrong) in enumerate(pool.map(findings, range(1, students + 1)), 1):
            sys.stdout.write(json.dumps({"student": student, **found}) + "\n")
            sys.stdout.flush()
            yield wrong


if __name__ == "__main__":
    problems = [problem for wrong in _all(int(sys.argv[1])) for problem in wrong]
    sys.stdout.write("\n".join(problems or ["all well"]) + "\n")
    sys.exit(1 if problems else 0)
