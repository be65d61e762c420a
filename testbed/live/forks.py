"""Forks of a run: its scenario so far, simulated from the start, with one thing changed.

    GET   /scenario    the scenario of the run so far, as YAML, and the files of code that it names:
                       {"name", "scenario", "code": {"mine.py": "..."}}
    GET   /forks       every fork: its number, state, moment, change; share or difference or error
    POST  /forks       {"at_s": 4.2, "change": {"fault": {...}}}; or "heal": N, or "operator": {...}

A fork is made in a process of its own, with the least priority, in `forks/N` of the run
directory. The status of a wrong request is 400, with its problems.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from testbed import interpreter
from testbed.control_api import Answer, load_command, refused
from testbed.live.fork import (
    CODE,
    DIFFERENCE,
    FORK,
    LOG,
    PROGRESS,
    SCENARIO,
    Difference,
    ForkRecord,
)
from testbed.live.history import RunHistory, as_files
from testbed.model.checks import require_no_code
from testbed.model.errors import InputError, MachineError, Problem
from testbed.model.faults.record import entry_of
from testbed.model.files.reading import REQUEST, require_json
from testbed.model.files.scenarios import load_fault, load_recorded
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S, exact_duration, parse_duration
from testbed.runs.making import require_makeable

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
                interpreter.python("-m", "testbed.live.fork", *arguments),
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
