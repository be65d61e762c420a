"""The parts of the bench can be listed and chosen; what is none of them is refused."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from testbed.model.errors import ExitStatus, MachineError
from testbed.studies.bench import measure
from testbed.studies.bench.measure import (
    PARTS,
    BenchPart,
    Measurement,
    Setting,
    at_least,
    at_most,
    load,
    not_measured,
)

from .conftest import Call


def test_every_part_is_listed_with_what_it_measures(call: Call) -> None:
    done = call("bench", "--list")
    assert done.status == ExitStatus.AS_EXPECTED
    listed = [line.split(maxsplit=1) for line in done.out.splitlines()]
    assert listed == [[name, part.what] for name, part in PARTS.items()]


def test_every_part_can_be_loaded() -> None:
    assert all(callable(load(name)) for name in PARTS)


def test_the_documents_tell_of_every_part_and_of_no_other() -> None:
    text = (Path(__file__).parents[2] / "docs/performance.md").read_text()
    listed = text.partition("## What `make bench` measures")[2]
    rows = re.findall(r"^\| (`[^|]+`) \|", listed, flags=re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == PARTS.keys()


def test_an_unknown_part_is_refused_before_anything_is_measured(call: Call) -> None:
    done = call("bench", "rate", "speed")
    assert done.status == ExitStatus.WRONG_INPUT
    assert "speed" in done.err
    assert all(name in done.err for name in PARTS)
    assert not done.out


def test_what_cannot_be_measured_is_told_and_is_no_success(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = not_measured(at_least("theirs / ours", "", [], 10), "no mnexec: apt install mininet")
    figures = [at_most("ours up", "s", [0.2, 0.3, 0.2], 1), missing]
    monkeypatch.setattr(measure, "PARTS", {"up": BenchPart("", "", root=False)})
    monkeypatch.setattr(measure, "load", lambda _: lambda _: figures)
    done = call("bench", "up")
    assert done.status == ExitStatus.FAILED
    assert "not measured" in done.out
    assert "theirs / ours: not measured, no mnexec: apt install mininet" in done.out
    message = json.loads(call("bench", "up", "--json").out)
    assert [one["holds"] for one in message] == [True, False]
    figures.remove(missing)
    assert call("bench", "up").status == ExitStatus.AS_EXPECTED


def test_a_part_that_cannot_be_measured_takes_no_other_with_it(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler(_: Setting) -> list[Measurement]:
        raise MachineError("no C compiler", "apt-get install gcc")

    good = at_most("ours up", "s", [0.2], 1)
    functions = {"rate": no_compiler, "up": lambda _: [good]}
    chosen = {name: BenchPart("one queue pair", "", root=False) for name in functions}
    monkeypatch.setattr(measure, "PARTS", chosen)
    monkeypatch.setattr(measure, "load", functions.__getitem__)
    done = call("bench")
    assert done.status == ExitStatus.FAILED
    assert "ours up" in done.out
    assert "one queue pair: not measured, no C compiler" in done.out
    assert "apt-get install gcc" in done.out


def test_a_part_is_added_by_a_module_and_a_row(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/architecture.md says: a function named like the part, and its row in PARTS."""
    module = ModuleType("testbed.studies.bench.heart_beat")
    vars(module)["heart_beat"] = lambda setting: [
        at_most("beats", "1/s", [1.1] * setting.repeats, 2)
    ]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = BenchPart("how fast it beats", "heart_beat", most_repeats=3, root=False)
    monkeypatch.setattr(measure, "PARTS", {**PARTS, "heart-beat": row})
    assert "heart-beat     how fast it beats" in call("bench", "--list").out
    done = call("bench", "heart-beat", "--json")
    assert done.status == ExitStatus.AS_EXPECTED
    (figure,) = json.loads(done.out)
    assert (figure["part"], figure["median"], len(figure["samples"])) == ("heart-beat", 1.1, 3)
