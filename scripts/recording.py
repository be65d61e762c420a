"""Record what simulated runs come to, or compare it with an earlier recording.

The simulator is deterministic: a change that is meant to change no behaviour must leave every run
equal to the bit. A recording holds a digest of each part of `summary.json` (without the run's name
and description) and of each Parquet table (but for round trips, which follow from what other tables
hold), for every run of a set, and some figures of each summary, so that a difference can be read.

    python scripts/recording.py compare           a dozen runs, under 3 minutes
    python scripts/recording.py compare --full    every scenario that simulates and the paper's
                                                  simulated experiments, seeds 1 to 3, but the
                                                  large ones, which take hours
    python scripts/recording.py record [--full]   write the recording again
    ... --only paper/incast-roce-8                only runs whose name begins so

Exit status: 0 all runs are equal, 1 some are not, 2 wrong arguments.
"""

import argparse
import hashlib
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from testbed import interpreter
from testbed.limits import simulations_at_once
from testbed.model.errors import InputError
from testbed.model.files.catalog import SCENARIOS
from testbed.model.files.scenarios import load_scenario, nominal
from testbed.model.scenario import Scenario
from testbed.runs.job import FORMS, Form
from testbed.runs.making import simulate_into
from testbed.sim.run import require_simulated
from testbed.studies.paper.planning import plan, select_figures

RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"
SEEDS = (1, 2, 3)

QUICK = frozenset(
    {
        "scenarios/allreduce",
        "scenarios/chaos",
        "scenarios/clustermapper",
        "scenarios/corrupting-link",
        "scenarios/grey-link-5",
        "scenarios/lossy-ev",
        "scenarios/t1-reboot",
        "scenarios/degraded-links",
        "scenarios/incast",
        "scenarios/link-failure",
        "scenarios/link-failure-roce",
        "scenarios/matrix",
        "scenarios/training",
        "scenarios/transceiver-flap",
        "paper/dead-link-blind",
        "paper/dead-link-go-back",
        "paper/nic-links-one-by-one",
        "paper/same-ev",
        "paper/unknown-dead-paths",
        "paper/write-lat-cross",
    }
)
"""Between them: every workload, most kinds of fault, RoCE, the Clustermapper."""

DERIVED = frozenset({"round_trips"})
"""Tables that a recording does not hold: a round trip decides nothing by itself, and `srtt_ns` in
`qp` moves with it."""

FIGURES = ("goodput_run_bps", "detection_rtt", "stall_rtt", "recovery_rtt", "deficit_rtt")
"""Figures of flows and faults that a recording keeps as numbers."""

Recording = dict[str, dict[str, Any]]
"""By the run's name (`scenarios/chaos seed 1`): its digests by part, and its figures."""


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A run of a set: its name, which also says its seed, and its scenario."""

    name: str
    scenario: Scenario

    def record(self) -> dict[str, Any]:
        """Simulate it and return the digests of what it came to."""
        with tempfile.TemporaryDirectory() as place:
            directory = Path(place, "run")
            directory.mkdir()
            (directory / "figures").mkdir()
            (directory / "logs").mkdir()
            simulate_into(directory, self.scenario)
            summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
            for key in ("run", "description"):  # a name and a text: no results
                del summary[key]
            digests = {f"summary.{key}": digest_of(value) for key, value in summary.items()}
            for file in sorted(directory.glob("*.parquet")):
                if file.stem in DERIVED:
                    continue
                columns = pl.read_parquet(file).iter_columns()
                digests[file.name] = digest_of({c.name: digest_of_column(c) for c in columns})
            return {"digests": digests, "figures": dict(figures_of(summary))}


def digest_of(value: object) -> str:
    """A digest of plain data; a float is written with all its digits."""
    return _digest(json.dumps(value, sort_keys=True).encode())


def digest_of_column(column: pl.Series) -> str:
    """A digest of a column's type, length and values."""
    if column.dtype == pl.String:
        data = "\n".join(column.to_list()).encode()
    else:
        data = column.to_numpy().tobytes()
    return _digest(f"{column.dtype} {len(column)} ".encode() + data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def figures_of(summary: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """The figures of a summary's flows and faults that are kept, by where they stand."""
    for group in ("flows", "faults"):
        for number, part in enumerate(summary[group]):
            for figure in FIGURES:
                if figure in part:
                    yield f"{group}[{number}].{figure}", part[figure]


def runs_of_set(*, full: bool) -> Iterator[SimulatedRun]:
    """Yield the runs of a set: of the quick one, those in `QUICK` with the first seed."""
    seeds = SEEDS if full else SEEDS[:1]
    for file in sorted(SCENARIOS.glob("*.yaml")):
        scenario = load_scenario(str(file), nominal)
        try:
            require_simulated(scenario)
        except InputError:
            continue
        for seed in seeds:
            if full or f"scenarios/{file.stem}" in QUICK:
                copy = scenario.model_copy(update={"seed": seed})
                yield SimulatedRun(f"scenarios/{file.stem} seed {seed}", copy)
    with tempfile.TemporaryDirectory() as place:
        figures = select_figures([])
        counts: Mapping[Form, int] = dict.fromkeys(FORMS, len(seeds))
        planned_runs = plan(figures, Path(place), ("simulated",), seeds=counts).due
    for planned in planned_runs:
        name = f"paper/{planned.scenario.name}"
        if planned.job.form == "simulated" and (full or name in QUICK):
            yield SimulatedRun(f"{name} seed {planned.job.seed}", planned.scenario)


def record(runs: Sequence[SimulatedRun]) -> Recording:
    """Simulate all runs, one a CPU at a time, the longest first."""
    runs = sorted(runs, key=_size, reverse=True)
    recording: Recording = {}
    began = time.monotonic()
    # Spawned, since what a run imports starts threads; each run in a fresh process, for its memory.
    context = multiprocessing.get_context("spawn")
    with (
        interpreter.safe_children(),
        context.Pool(simulations_at_once(), maxtasksperchild=8) as pool,
    ):
        for name, recorded in pool.imap_unordered(_recorded, runs):
            recording[name] = recorded
            passed_s = time.monotonic() - began
            sys.stderr.write(f"{passed_s:6.0f} s  {len(recording)}/{len(runs)}  {name}\n")
    return dict(sorted(recording.items()))


def _size(run: SimulatedRun) -> float:
    """About how long a run takes: bits that its hosts may send, in no particular unit."""
    topology = run.scenario.topology
    return float(run.scenario.duration * topology.port_rate_bps * len(topology.hosts))


def _recorded(run: SimulatedRun) -> tuple[str, dict[str, Any]]:
    return run.name, run.record()


def differences(before: Recording, after: Recording) -> Iterator[str]:
    """Yield a line for each run that differs, or that only one of two recordings has."""
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"{name}: was recorded before, but is no longer run"
        elif name not in before:
            yield f"{name}: was not recorded before"
        else:
            yield from _differences_of_run(name, before[name], after[name])


def _differences_of_run(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[str]:
    moved = _moved(before["digests"], after["digests"])
    if not moved:
        return
    yield f"{name}: {', '.join(moved)}"
    for figure in _moved(before["figures"], after["figures"]):
        was, now = before["figures"].get(figure), after["figures"].get(figure)
        yield f"    {figure}: {was} before, {now} now"


def _moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    absent = object()
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name, absent) != after.get(name, absent)]


def write(recording: Recording, file: Path) -> None:
    """Write a recording with a line for each run, so that a change of it can be read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        f"{json.dumps(name)}: {json.dumps(recorded, sort_keys=True)}"
        for name, recorded in recording.items()
    )
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> int:
    """Record or compare, as the command line says."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("--full", action="store_true", help="all runs; else a dozen")
    parser.add_argument("--only", metavar="NAME", help="only runs whose name begins so")
    parser.add_argument("--file", type=Path, help="instead of the recording in tests/recordings")
    arguments = parser.parse_args()
    file = arguments.file or RECORDINGS / ("full.json" if arguments.full else "quick.json")
    if arguments.action == "compare" and not file.exists():
        parser.error(f"{file}: there is no such recording; make one with: recording.py record")
    only = arguments.only or ""
    runs = [run for run in runs_of_set(full=arguments.full) if run.name.startswith(only)]
    if not runs:
        parser.error(f"--only {only}: no run's name begins so")
    recording = record(runs)
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if arguments.action == "record":
        others = {name: kept for name, kept in before.items() if not name.startswith(only)}
        write(dict(sorted({**others, **recording}.items())), file)
        sys.stdout.write(f"{len(recording)} runs recorded in {file}\n")
        return 0
    compared = {name: kept for name, kept in before.items() if name.startswith(only)}
    lines = list(differences(compared, recording))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write("" if lines else f"{len(recording)} runs, all equal\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
