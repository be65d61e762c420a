"""The journal survives crashes."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.model.errors import InputError
from testbed.studies.labs.work import Entry, Journal

RUN = {"run": "failure", "directory": "results/x", "verdict": "trusted"}


def _journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path / ".lab" / "journal.jsonl")
    journal.append("start", lab="02-first-failure", key="k")
    journal.append("prediction", task="stall", value=1.5)
    journal.append("run", **RUN)
    return journal


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    entries = _journal(tmp_path).entries()
    assert [entry.kind for entry in entries] == ["start", "prediction", "run"]


@given(cut=st.integers(min_value=1))
def test_a_line_that_a_crash_cut_off_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    journal = _journal(tmp_path_factory.mktemp("journal"))
    whole = journal.path.read_bytes()
    last = len(whole) - whole[:-1].rfind(b"\n") - 1
    journal.path.write_bytes(whole[: len(whole) - 1 - cut % (last - 1)])
    assert [entry.kind for entry in journal.entries()] == ["start", "prediction"]
    journal.append("run", **RUN)
    entries = journal.entries()
    assert [entry.kind for entry in entries] == ["start", "prediction", "run"]


def test_a_damaged_file_is_one_clear_error(tmp_path: Path) -> None:
    journal = _journal(tmp_path)
    journal.path.write_text("not an entry\n")
    with pytest.raises(InputError, match=r"journal\.jsonl:1: found .*\n.*--reset"):
        journal.entries()


@pytest.mark.parametrize(
    "time",
    [
        *("", "9999", "\ud800", 5, None, "=1+1", "2026-01-01", "2026-W01-1"),
        *("2026-01-01T00:00:00.000", "2026-01-01T00:00:00.000+01:00"),
        "9999-12-31T23:59:59.999-01:00",
    ],
)
def test_a_time_in_another_form_is_refused(tmp_path: Path, time: object) -> None:
    """Submissions are put in order by the text: another form could be the last of all."""
    journal = _journal(tmp_path)
    journal.path.write_text(json.dumps({"kind": "hint", "time": time, "content": {}}) + "\n")
    with pytest.raises(InputError, match="without the time at which it was made"):
        journal.entries()


@pytest.mark.parametrize(
    ("kind", "content", "lacking"),
    [
        ("start", {"lab": "02-first-failure"}, "key"),
        ("start", {"lab": "02-first-failure", "key": 5}, "key"),
        ("prediction", {"task": "stall"}, "value"),
        ("prediction", {"task": ["stall"], "value": 1.5}, "task"),
        ("run", {"run": "failure", "verdict": "trusted"}, "directory"),
        ("run", RUN | {"run": {}}, "run"),
        ("emulated", {}, "run"),
        ("attempt", {"task": "stall", "answer": "1 RTT"}, "passed"),
        ("hint", {"task": "stall", "number": "many"}, "number"),
    ],
)
def test_an_entry_written_by_hand_lacks_nothing(
    tmp_path: Path, kind: str, content: dict[str, object], lacking: str
) -> None:
    """Commands read it without a look whether it is there."""
    journal = _journal(tmp_path)
    journal.append(kind, **content)
    with pytest.raises(
        InputError, match=rf"jsonl:4: found an entry \({kind}\) without its {lacking}"
    ):
        journal.entries()


def test_an_entry_is_one_line() -> None:
    entry = Entry("run", "now", {"text": "two\nlines"})
    assert "\n" not in entry.to_line()
