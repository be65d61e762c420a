"""`make soak`: every fault for longer, then every shipped scenario on the fabric, and a table.

With names, these parts instead of all: `faults`, and scenarios. No part ends the others. What could
not be trusted is tried again when all have been run once, as long as there is time: from the
shortest on, and the runs of ten minutes (MUST_BE_TRUSTED) also where they are only degraded. All
once take forty minutes, twenty of which are those of `chaos-long` and `clustermapper-long`. The
table is also in RESULTS/soak.md, and in RESULTS/soak.json for programs; a soak that was broken off
goes on there with what it has not done, and one that came to its end begins anew. Exit status: 0
all was as expected, 1 something was not, or could not be trusted, 2 wrong arguments.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.model.errors import ExitStatus, did_you_mean
from testbed.results.run_directory import RunDirectory

ROOT = Path(__file__).parents[1]
TESTBED = Path(sys.executable).with_name("testbed")
MATRIX = "faults"
MATRIX_TESTS = ("-m", "pytest", "-q", "tests/controller/test_matrix.py")

MUST_BE_TRUSTED = frozenset({"chaos-long", "clustermapper-long"})
"""What these show, no leak and nobody accused, takes a machine that did nothing else; of the others
a verdict *degraded* leaves what they expect standing."""

LASTING_MIN = 45
"""So long a soak may take with what is tried again; each part is run once all the same."""

HANGS_S = 30 * 60
"""A part that takes longer does not end."""

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
        seconds: what the last try took.
        verdict: of the last try.
        why: what was not as expected, and why a run is not trusted.
        disturbed: whether it says too little because of the machine that it was on.
        bytes_sent: payload.
        bytes_damaged: payload lost or corrupted.
        qps_in_error: flows of which a message failed.
        growth: by how much the memory of the process that grew most did; None if not measured.
        commit: the project's state that was tested.
        faults: of a scenario with faults of links: how many, and the worst that one did, as a row
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
    commit: str = ""
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


def main() -> int:
    """Run everything, one after the other, then again what was disturbed; say how it went."""
    began = time.monotonic()
    asked = _arguments()
    directory = Path(asked.results)
    directory.mkdir(parents=True, exist_ok=True)
    wanted = asked.parts
    done = _broken_off(directory, wanted)
    _measure_machine()
    _show(HEADINGS)
    for part in done.values():
        _show(part.cells)
    for name in wanted:
        if name not in done:
            done[name] = _matrix(directory) if name == MATRIX else _scenario(name, asked.results)
            _write(directory, wanted, done)
            _show(done[name].cells)
    until = began + asked.minutes * 60
    while (again := _to_be_tried(done, asked.tries, until - time.monotonic())) is not None:
        done[again.name] = _scenario(again.name, asked.results, again.tries + 1)
        _write(directory, wanted, done)
        _show(done[again.name].cells)
    _write(directory, wanted, done, over=True)
    wrong = [name for name, part in done.items() if not part.fine]
    said = f"not as expected, or not trusted: {', '.join(wrong)}" if wrong else "all as expected"
    sys.stdout.write(f"{said}; table: {directory / 'soak.md'}\n")
    return 1 if wrong else 0


def _to_be_tried(done: Mapping[str, Part], most: int, left_s: float) -> Part | None:
    """What was disturbed, has been tried least often, and fits into the time that is left."""
    fit = [
        part
        for part in done.values()
        if part.disturbed and part.tries < most and part.seconds <= left_s
    ]
    return min(fit, key=lambda part: (part.tries, part.seconds), default=None)


def _arguments() -> argparse.Namespace:
    """What was asked for; names of parts that there are none of end it with status 2."""
    known = [MATRIX, *sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))]
    parser = argparse.ArgumentParser(prog="make soak", description="Try everything for longer.")
    parser.add_argument("results", help="directory for the runs and the table")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(known)}")
    parser.add_argument(
        "--tries",
        type=int,
        choices=range(1, 10),
        default=3,
        metavar="N",
        help="how often a run is tried that cannot be trusted (default: 3)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=LASTING_MIN,
        metavar="N",
        help=f"nothing is tried again that would end later than this (default: {LASTING_MIN})",
    )
    asked = parser.parse_intermixed_args()
    asked.parts = asked.parts or known
    for name in asked.parts:
        if name not in known:
            parser.error(f"no part is called {name}; {did_you_mean(name, known) or 'see --help'}")
    return asked


def _broken_off(directory: Path, wanted: list[str]) -> dict[str, Part]:
    """What a soak of the same parts and the same commit did before it was broken off."""
    file = directory / "soak.json"
    if not file.is_file():
        return {}
    content = json.loads(file.read_text())
    if content["wanted"] != wanted or content.get("over", True):
        return {}
    parts = [Part(**part) for part in content["done"]]
    return {part.name: part for part in parts if part.commit == _commit()}


def _write(
    directory: Path, wanted: list[str], done: Mapping[str, Part], *, over: bool = False
) -> None:
    parts = [asdict(part) for part in done.values()]
    content = {"wanted": wanted, "over": over, "done": parts}
    tables = [_table(HEADINGS, [part.cells for part in done.values()])]
    if faults := [(part.name, *part.faults) for part in done.values() if part.faults]:
        tables.append(_table(FAULT_HEADINGS, faults))
    place = RunDirectory(directory)
    place.write("soak.md", "\n".join(tables))
    place.write("soak.json", json.dumps(content, indent=2) + "\n")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _measure_machine() -> None:
    """See what the machine carries now: an old figure may have runs refused, or too fast for it.

    What stands in the way of that, every run will say for itself.
    """
    status, _, complained = _run([str(TESTBED), "doctor", "--measure"])
    if status != ExitStatus.AS_EXPECTED:
        sys.stderr.write(complained)


def _matrix(directory: Path) -> Part:
    """Every kind of fault on every target, a second each; what a failure said is kept."""
    began = time.monotonic()
    status, said, complained = _run([sys.executable, *MATRIX_TESTS], {"TESTBED_SOAK": "1"})
    fine = status == ExitStatus.AS_EXPECTED
    verdict = "passed" if fine else "FAILED"
    why = _last_line(said or complained)
    if not fine:
        log = directory / "soak-faults.log"
        log.write_text(said + complained)
        why = f"{why}: see {log}"
    return Part(MATRIX, fine, 1, _since(began), verdict, why, commit=_commit())


def _scenario(name: str, results: str, tries: int = 1) -> Part:
    """One scenario on the emulated fabric, for the first time or again."""
    began = time.monotonic()
    command = [str(TESTBED), "run", name, "--results", results, "--json"]
    status, said, complained = _run(command)
    seconds = _since(began)
    summary = json.loads(said)["summary"] if said else None
    disturbed = _is_disturbed(name, status, summary)
    if summary is None:
        why = _complaint(complained)
        return Part(name, False, tries, seconds, "FAILED", why, disturbed, commit=_commit())
    integrity = summary["integrity"]
    failed = [one for one in summary["expectations"] if not one["holds"]]
    reasons = [f"{one['figure']} {_shown(one['value'])}, not {one['bound']}" for one in failed]
    return Part(
        name,
        status == ExitStatus.AS_EXPECTED and not disturbed,
        tries,
        seconds,
        summary["verdict"],
        "; ".join([*reasons, *summary["reasons"]]),
        disturbed,
        integrity["bytes_sent"],
        integrity["bytes_lost"] + integrity["bytes_corrupted"],
        summary["qps_in_error"],
        max((one["growth"] for one in summary["memory"]), default=None),
        _commit(),
        _worst(summary["faults"]),
    )


def _worst(faults: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """What the faults of links did to the flows that they struck, each figure that of the worst."""
    struck = [one for one in faults if one["flows_affected"] and ">" in one["places"][0]]
    if not struck:
        return ()
    times = (
        _most(struck, f"{figure}_rtt", "{:.2f}") for figure in ("detection", "stall", "recovery")
    )
    lost = sum(one["packets_lost"] for one in struck)
    return (f"{len(struck)}", *times, f"{lost:,}", _most(struck, "residual_loss", "{:.3%}"))


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _most(faults: Sequence[dict[str, Any]], figure: str, shape: str) -> str:
    """The most of a figure over the faults that have it, and how many have not."""
    found = [one[figure] for one in faults if one[figure] is not None]
    missing = len(faults) - len(found)
    most = shape.format(max(found)) if found else "none"
    return f"{most} (none: {missing})" if found and missing else most


def _is_disturbed(name: str, status: int, summary: dict[str, Any] | None) -> bool:
    """Whether a run says too little because of the machine that it was on."""
    if summary is not None and status == ExitStatus.AS_EXPECTED:
        return name in MUST_BE_TRUSTED and summary["verdict"] != "trusted"
    return status == ExitStatus.UNTRUSTED


def _run(
    command: Sequence[str], variables: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit status, output and complaints of a command; one that hangs is killed, and failed."""
    try:
        done = subprocess.run(  # noqa: S603 - our own commands
            command,
            check=False,
            cwd=ROOT,
            env=os.environ | dict(variables or {}),
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )
    except subprocess.TimeoutExpired:
        return ExitStatus.FAILED, "", f"did not end within {HANGS_S // 60} min, and was killed"
    return done.returncode, done.stdout, done.stderr


def _commit() -> str:
    """The project's state, changes that are not committed included."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    return subprocess.run(  # noqa: S603 - fixed words
        command, check=False, cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()


def _complaint(text: str) -> str:
    """The error that a command ended with, its remedy included; or else the last that it said."""
    error = text.rpartition("error: ")[2] if "error: " in text else _last_line(text)
    return " ".join(error.split())


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["said nothing"])[-1]


def _since(began: float) -> int:
    return round(time.monotonic() - began)


def _show(cells: tuple[str, ...]) -> None:
    sys.stdout.write(SCREEN.format(*cells).rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
