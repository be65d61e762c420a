"""Forks of a run: its scenario so far, simulated from the start, with one thing changed.

    GET   /scenario    the scenario of the run so far, as YAML, and the files of code that it names:
                       {"name", "scenario", "code": {"mine.py": "..."}}
    GET   /forks       every fork: its number, state, moment, change; share or difference or error
    POST  /forks       {"at_s": 4.2, "change": {"fault": {...}}}; or "heal": N, or "operator": {...}

A fork is made in a process of its own, with the least priority, in `forks/N` of the run
directory. The status of a wrong request is 400, with its problems.

`python -m testbed.live.forks DIRECTORY STREAM AT_S [code]` is that process. It simulates
`scenario.yaml` of the directory, and compares the fork's event stream with that of the real run: up
to the moment, where both did the same, and from then on. Only with `code` it executes classes that
the scenario has: whoever may write to the directory may have put them there.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from testbed import interpreter
from testbed.control_api import Answer, load_command, refused
from testbed.live.stream.recorded import recorded_stream
from testbed.live.stream.records import (
    Detection,
    Snapshot,
    State,
    StreamReader,
    StreamRecord,
    to_line,
)
from testbed.live.stream.writer import STREAM, RawTail
from testbed.model.checks import require_no_code
from testbed.model.errors import InputError, MachineError, Problem, TestbedError
from testbed.model.faults.record import FaultRecord, entry_of, replayed_timeline
from testbed.model.files.reading import REQUEST, require_json
from testbed.model.files.scenarios import load_fault, load_recorded
from testbed.model.operator.replayed import replayed_operator
from testbed.model.own_code import CLASS, OwnCode, recorded_code
from testbed.model.run_files.layout import MANIFEST, RAW
from testbed.model.run_files.manifest import Manifest
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S, exact_duration, parse_duration
from testbed.results.records import OPERATOR
from testbed.rights import acting_for
from testbed.runs.making import require_makeable, simulate_into

Rows = Iterable[Mapping[str, Any]]
"""Rows of the table `operator`."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """What has been done in a run.

    Attributes:
        scenario: what is run.
        resolved: the same as JSON, with its topology.
        faults: its faults, those by hand too.
        operator: the rows of the table `operator`.
        t0_ns: its start, on the clock of the faults' records.
        lasted_ns: how long it has lasted.
    """

    scenario: Scenario
    resolved: Mapping[str, Any]
    faults: tuple[FaultRecord, ...]
    operator: tuple[Mapping[str, Any], ...]
    t0_ns: int
    lasted_ns: int

    def as_scenario(
        self, until_ns: int | None = None, duration_ns: int | None = None
    ) -> dict[str, Any]:
        """The scenario that does all this again.

        Args:
            until_ns: without what was done from this time on; None: with all.
            duration_ns: its duration; None: that of the run. Faults end with it, at the latest.
        """
        end_ns = duration_ns or max(self.scenario.duration, self.lasted_ns)
        timeline = replayed_timeline(self.scenario, self.faults, self.t0_ns, until_ns)
        again = {
            **self.resolved,
            "duration": exact_duration(end_ns),
            "timeline": [_within(entry, end_ns) for entry in timeline],
        }
        again.pop("operator", None)
        if self.scenario.programs:  # its commands were for flows of programs
            return again
        flows = [
            f"{src}->{dst}{f'#{lane}' if lane else ''}" for src, dst, lane in self.scenario.flows
        ]
        until_ns = end_ns if until_ns is None else min(until_ns, end_ns)
        operator = replayed_operator(self.scenario, self.operator, flows, until_ns)
        return {**again, "operator": operator} if operator else again


def _within(entry: dict[str, Any], end_ns: int) -> dict[str, Any]:
    """An entry of a timeline that ends with the run, if it would go on."""
    left_ns = end_ns - parse_duration(entry["at"])
    if "for" not in entry or parse_duration(entry["for"]) <= left_ns:
        return entry
    return {key: value for key, value in entry.items() if key != "count"} | {
        "for": exact_duration(left_ns)
    }


def history_of_live_run(
    directory: Path,
    scenario: Scenario,
    faults: Iterable[FaultRecord],
    t0_ns: int,
    lasted_ns: int,
) -> RunHistory:
    """What has been done so far in a run that goes on."""
    manifest = Manifest.model_validate_json((directory / MANIFEST).read_text(encoding="utf-8"))
    with RawTail(directory / RAW, t0_ns, (OPERATOR,)) as tail:
        tail.read()
        columns = tail.rows_before(float("inf")).get(OPERATOR, {})
    lists = {name: values.tolist() for name, values in columns.items()}
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    rows.sort(key=lambda row: row["t"])
    return RunHistory(scenario, manifest.scenario, tuple(faults), tuple(rows), t0_ns, lasted_ns)


def as_files(scenario: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """A scenario of a record as the text of a file, and the files of code that it names.

    Returns:
        The text; the content of each file of code, which belongs beside it, by its name.
    """
    code: dict[str, str] = {}
    transport = recorded_code(scenario["transport"])
    for key, own in transport.items():
        if isinstance(own, OwnCode):
            named = f"{_file_of(own, code)}:{own.name}"
            transport[key] = {CLASS: named, **own.parameters} if own.parameters else named
    content = {**scenario, "transport": transport}
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return text, code


def _file_of(own: OwnCode, code: dict[str, str]) -> str:
    """The path of the file of a class, which is added with those that it imports.

    Where other content has its name, it gets another one; with those that it imports, which keep
    their names, it is in a folder of its own then.
    """
    stem, imported = Path(own.file).stem, own.modules.items()
    for number in count(1):
        after = "" if number == 1 else f"-{number}"
        folder = f"code{after}/" if after and imported else ""
        name = f"{folder}{stem}.py" if folder else f"{stem}{after}.py"
        files = {f"{folder}{module}.py": text for module, text in imported} | {name: own.source}
        if all(code.get(file, text) == text for file, text in files.items()):
            break
    code |= files
    return name


# --------------------------------------------------------------------------------------------------
# The files of a fork, `forks/N` in the run directory: declared once for who writes and who reads.
#
# `Forks` makes the directory with the fork's scenario and record; the process that simulates the
# fork adds its progress, the records of a run, and last the difference.


FORK = "fork.json"
DIFFERENCE = "difference.json"
PROGRESS = "progress"
SCENARIO = "scenario.yaml"
LOG = "fork.log"

CODE = "code"
"""The argument that lets the process execute the classes of the scenario."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class ForkRecord(_Model):
    """The content of `fork.json`.

    Attributes:
        fork: its number.
        at_s: the moment of the change, in seconds from the start.
        change: what was changed, in words.
    """

    fork: int
    at_s: float = 0.0
    change: str = "unknown"


class ComparedPart(_Model):
    """What a part of both runs came to; each pair is (real, fork).

    Attributes:
        seconds: its length, emulated.
        goodput_bps: the mean over time, over all flows together; None if there was no step.
        lost: packets declared lost.
        retransmitted: packets sent again.
        detections_rtt: the first detection of each fault in base RTTs, by the fault's number.
    """

    seconds: float
    goodput_bps: tuple[float | None, float | None]
    lost: tuple[int, int]
    retransmitted: tuple[int, int]
    detections_rtt: tuple[dict[int, float], dict[int, float]]


class Difference(_Model):
    """The content of `difference.json`: both runs up to the moment of the change, and after it.

    Up to the moment both did the same. After it only the time that both have is compared.
    """

    before: ComparedPart
    after: ComparedPart


def main(directory: Path, real: Path, at_s: float, *, allow_code: bool) -> None:
    def progress(_: str, share: float) -> None:
        (directory / PROGRESS).write_text(f"{share:.3f}", encoding="utf-8")

    with acting_for(directory):
        scenario = load_recorded(directory / SCENARIO)
        if not allow_code:
            require_no_code(scenario)
        together = scenario.model_copy(update={"interference": False})
        simulate_into(directory, together, progress=progress)
        fork = [*recorded_stream(directory)]
        (directory / STREAM).write_text("".join(map(to_line, fork)), encoding="utf-8")
        found = difference([*StreamReader(real).new_records()], fork, at_s)
        (directory / DIFFERENCE).write_text(found.model_dump_json(), encoding="utf-8")


def difference(
    real: Iterable[StreamRecord], fork: Iterable[StreamRecord], at_s: float
) -> Difference:
    """Compare both runs before a moment and after it."""
    runs = _Course(real), _Course(fork)
    end_s = min(run.end_s for run in runs)
    return Difference(before=_part(*runs, 0.0, at_s), after=_part(*runs, at_s, end_s))


def _part(real: "_Course", fork: "_Course", begin_s: float, end_s: float) -> ComparedPart:
    times = begin_s, end_s
    return ComparedPart(
        seconds=max(end_s - begin_s, 0.0),
        goodput_bps=(real.goodput_bps(*times), fork.goodput_bps(*times)),
        lost=(real.grown("lost", *times), fork.grown("lost", *times)),
        retransmitted=(real.grown("retransmitted", *times), fork.grown("retransmitted", *times)),
        detections_rtt=(real.detections(*times), fork.detections(*times)),
    )


class _Course:
    """What a stream tells of its flows, step by step."""

    def __init__(self, records: Iterable[StreamRecord]) -> None:
        self.end_s = 0.0
        self._steps: list[tuple[float, float, dict[str, int]]] = []
        self._detections: list[Detection] = []
        self._base_rtt_s = 1.0
        goodput: dict[int, float] = {}
        counts: dict[str, dict[int, int]] = {"lost": {}, "retransmitted": {}}
        for record in records:
            if isinstance(record, Snapshot):
                self._base_rtt_s = record.base_rtt_s
            elif isinstance(record, Detection):
                self._detections.append(record)
            elif isinstance(record, State):
                for flow, state in record.flows.items():
                    if state.goodput_bps is not None:
                        goodput[flow] = state.goodput_bps
                    for name, by_flow in counts.items():
                        value = getattr(state, name)
                        if value is not None:
                            by_flow[flow] = value
                sums = {name: sum(by_flow.values()) for name, by_flow in counts.items()}
                self._steps.append((record.t, sum(goodput.values()), sums))
                self.end_s = record.t

    def goodput_bps(self, begin_s: float, end_s: float) -> float | None:
        """The mean between two times; None if no step is between them."""
        rates = [rate for t, rate, _ in self._steps if begin_s < t <= end_s]
        return sum(rates) / len(rates) if rates else None

    def grown(self, name: str, begin_s: float, end_s: float) -> int:
        """By how much a count grew between two times."""
        return self._count(name, end_s) - self._count(name, begin_s)

    def _count(self, name: str, at_s: float) -> int:
        return next((sums[name] for t, _, sums in reversed(self._steps) if t <= at_s), 0)

    def detections(self, begin_s: float, end_s: float) -> dict[int, float]:
        """The first detection of each fault between two times, in base RTTs."""
        first: dict[int, float] = {}
        for detection in self._detections:
            if begin_s < detection.t <= end_s:
                first.setdefault(detection.fault, detection.after_s / self._base_rtt_s)
        return first


FORKS = "forks"
"""The directory of forks in a run directory."""

MOST_FORKS = 20
"""Forks of one run: each takes disk space."""

LEAST_PRIORITY = 19
"""Of the process that simulates a fork: an emulated run that goes on comes first."""

_LEAST_AFTER_RTTS = 100
"""A fork lasts so long beyond the moment, at least."""


_LONGEST_S = 1e9


class _Change(BaseModel):
    model_config = ConfigDict(extra="forbid")

    fault: dict[str, Any] | None = None
    heal: int | None = None
    operator: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.model_dump(exclude_none=True)) > 1:
            raise ValueError("one change at most")
        return self


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    at_s: float = Field(gt=0, le=_LONGEST_S, allow_inf_nan=False, strict=True)
    change: _Change = _Change()


class Forks:
    def __init__(
        self,
        directory: Path,
        stream: Path,
        history: Callable[[], RunHistory | None],
        *,
        allow_code: bool,
    ) -> None:
        """Prepare for forks of one run.

        Args:
            directory: of the run.
            stream: its event stream.
            history: returns what was done in it, None before its start.
            allow_code: whether forks may execute the classes that the run's record has.
        """
        self._directory = (directory / FORKS).absolute()
        self._stream = stream.absolute()
        self._history = history
        self._allow_code = allow_code
        self._forks = _made_before(self._directory)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def answer(self, method: str, path: str, body: str) -> Answer | None:
        """Answer a request for forks or for the scenario; None if it is for something else."""
        if path not in {"/forks", "/scenario"}:
            return None
        try:
            if path == "/scenario":
                return HTTPStatus.OK, self._scenario()
            if method == "POST":
                return HTTPStatus.ACCEPTED, self._begin(body)
            return HTTPStatus.OK, [self._state(fork) for fork in self._forks]
        except InputError as error:
            return refused(HTTPStatus.BAD_REQUEST, *error.problems)
        except OSError as error:
            expected = "room, and the right to write, in the directory of the run"
            problem = Problem(REQUEST, f"{error.filename}: {error.strerror}", expected)
            return refused(HTTPStatus.INTERNAL_SERVER_ERROR, problem)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _begun(self) -> RunHistory:
        history = self._history()
        if history is None:
            raise InputError.of(REQUEST, "", "a run that has begun")
        return history

    def _scenario(self) -> dict[str, Any]:
        history = self._begun()
        text, code = as_files(history.as_scenario())
        return {"name": history.scenario.name, "scenario": text, "code": code}

    def _begin(self, body: str) -> dict[str, Any]:
        require_json(body, "a moment and a change in JSON", '{"at_s": 4.2, "change": {"heal": 0}}')
        try:
            request = _Request.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or REQUEST
            found, expected = str(first["input"])[:80], f"a moment and a change: {first['msg']}"
            raise InputError.of(where, found, expected) from None
        if len(self._forks) >= MOST_FORKS:
            raise InputError.of(REQUEST, f"fork {MOST_FORKS + 1}", f"{MOST_FORKS} forks at most")
        if any(process.poll() is None for process in self._processes.values()):
            raise InputError.of(REQUEST, "another fork", "one at a time", "wait until it is done")
        history = self._begun()
        _require_makeable(history.scenario)
        if not self._allow_code:
            require_no_code(history.scenario)
        at_ns = round(request.at_s * NS_PER_S)
        if at_ns > history.lasted_ns:
            lasted = exact_duration(history.lasted_ns)
            raise InputError.of(REQUEST, exact_duration(at_ns), f"a moment up to now ({lasted})")
        scenario, change = changed(history, at_ns, request.change)
        number = max((fork.fork for fork in self._forks), default=0) + 1
        fork = ForkRecord(fork=number, at_s=request.at_s, change=change)
        place = self._directory / str(number)
        place.mkdir(parents=True)
        try:
            file = place / SCENARIO
            file.write_text(json.dumps(scenario, indent=1), encoding="utf-8")
            _require_makeable(load_recorded(file))
            (place / FORK).write_text(fork.model_dump_json(), encoding="utf-8")
        except (InputError, OSError):
            shutil.rmtree(place, ignore_errors=True)
            raise
        with (place / LOG).open("wb") as log:
            code = (CODE,) if self._allow_code else ()
            arguments = place, self._stream, str(request.at_s), *code
            process = interpreter.start(
                interpreter.python("-m", "testbed.live.forks", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, LEAST_PRIORITY)
        self._processes[number] = process
        self._forks.append(fork)
        return self._state(fork)

    def _state(self, record: ForkRecord) -> dict[str, Any]:
        fork = record.model_dump()
        place = self._directory / str(record.fork)
        process = self._processes.get(record.fork)
        if process is not None and process.poll() is None:
            share = 0.0
            with suppress(OSError, ValueError):
                share = float((place / PROGRESS).read_text(encoding="utf-8"))
            return {**fork, "state": "simulating", "share": share}
        with suppress(OSError, ValidationError):
            text = (place / DIFFERENCE).read_text(encoding="utf-8")
            difference = Difference.model_validate_json(text)
            return {**fork, "state": "done", "difference": difference.model_dump(mode="json")}
        last = ""
        with suppress(OSError):
            last = (place / LOG).read_text(encoding="utf-8", errors="replace").strip()
        return {**fork, "state": "failed", "error": last[-1000:] or "it was killed"}


def _require_makeable(scenario: Scenario) -> None:
    """Check that a scenario can be simulated here.

    Raises:
        InputError: it cannot.
    """
    try:
        require_makeable(scenario, "simulated")
    except MachineError as error:
        raise InputError.of(REQUEST, "a fork", f"a machine that can simulate it: {error}") from None


def _made_before(directory: Path) -> list[ForkRecord]:
    """The forks in a directory, by number; each number that is taken there is one of them."""
    forks = []
    for place in directory.glob("*"):
        if place.name.isdecimal():
            made = ForkRecord(fork=int(place.name))
            with suppress(OSError, ValueError):
                made = ForkRecord.model_validate_json((place / FORK).read_text(encoding="utf-8"))
            forks.append(made)
    return sorted(forks, key=attrgetter("fork"))


def changed(history: RunHistory, at_ns: int, change: _Change) -> tuple[dict[str, Any], str]:
    """The scenario of a fork, and its change in words.

    Raises:
        InputError: the change is none of this run.
    """
    topology = history.scenario.topology
    after_ns = _LEAST_AFTER_RTTS * topology.propagation_rtt_ns
    end_ns = max(history.lasted_ns, at_ns + after_ns)
    at, left = exact_duration(at_ns), exact_duration(end_ns - at_ns)
    scenario = {**history.as_scenario(at_ns, end_ns), "name": "fork"}
    scenario.pop("expect", None)
    words = "nothing more is done"
    if change.fault is not None:
        fault = load_fault(json.dumps(change.fault), topology)
        entry = {**entry_of(fault), "at": at}
        if "for" in entry and "count" not in entry:
            entry["for"] = left
        scenario["timeline"].append(entry)
        words = f"{fault.kind} of {', '.join(fault.target)}"
    elif change.operator is not None:
        command = load_command(json.dumps(change.operator), topology)
        entry = command.model_dump(mode="json", by_alias=True, exclude_none=True)
        scenario["operator"] = [*scenario.get("operator", []), {**entry, "at": at}]
        words = f"{command.kind}"
    elif change.heal is not None:
        words = _heal(history, scenario, at_ns, change.heal)
    return scenario, words


def _heal(history: RunHistory, scenario: dict[str, Any], at_ns: int, index: int) -> str:
    """Let a fault end at a time."""
    record = next((record for record in history.faults if record.index == index), None)
    if record is None:
        raise InputError.of(REQUEST, f"fault {index}", "the number of a fault of this run")
    for entry in scenario["timeline"]:
        targets = entry["target"] if isinstance(entry["target"], list) else [entry["target"]]
        begins_ns = parse_duration(entry["at"])
        is_it = (entry["kind"], ", ".join(targets)) == (record.kind, record.target)
        in_force = "for" in entry and begins_ns + parse_duration(entry["for"]) > at_ns
        if is_it and in_force:
            entry["for"] = exact_duration(at_ns - begins_ns)
            entry.pop("count", None)
            return f"{record.kind} of {record.target} is healed"
    raise InputError.of(REQUEST, f"fault {index}", "a fault that is in force at this moment")


if __name__ == "__main__":
    try:
        given = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
        main(*given, allow_code=sys.argv[4:] == [CODE])
    except TestbedError as error:
        sys.exit(str(error))
