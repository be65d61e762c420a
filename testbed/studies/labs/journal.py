"""What a student did, in order: a file that only grows, with an entry of JSON on each line.

A line that was cut off by a crash is left out. The file is the student's: nothing in it is proof.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from testbed.model.errors import InputError
from testbed.rights import reading_for


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was done.

    Attributes:
        kind: start, prediction, run, emulated, attempt or hint.
        time: when, as `in_utc`: the order of these texts is that of the times.
        content: what, by key.
    """

    kind: str
    time: str
    content: dict[str, Any]

    def to_line(self) -> str:
        return json.dumps({"kind": self.kind, "time": self.time, "content": self.content})


_NEEDED: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "start": {"lab": str, "key": str},
    "prediction": {"task": str, "value": (str, int, float, list)},
    "run": {"run": str, "directory": str, "verdict": str},
    "emulated": {"run": str},
    "attempt": {"task": str, "answer": str, "passed": bool},
    "hint": {"task": str, "number": int},
}
"""What each kind of entry has, as the commands read it."""


class Journal:
    """The file of a work directory."""

    def __init__(self, path: Path) -> None:
        """Open the file, which may not exist yet."""
        self.path = path

    def entries(self) -> tuple[Entry, ...]:
        """All entries, in order; without the last line if it was cut off.

        Raises:
            InputError: a line is no entry.
        """
        try:
            with reading_for(self.path.parent):
                text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ()
        except (OSError, UnicodeDecodeError) as error:
            raise _damaged(self.path, 0, str(error)) from None
        return tuple(parse_entries(text, self.path))

    def append(self, kind: str, **content: Any) -> Entry:
        """Add an entry; it is on the disk when this returns.

        Raises:
            InputError: a line is no entry, or the file cannot be written.
        """
        self.entries()  # raises if a line is no entry
        entry = Entry(kind, in_utc(datetime.now(UTC)), content)
        try:
            with reading_for(self.path.parent):
                self._write(f"{entry.to_line()}\n".encode())
        except OSError as error:
            found = (error.strerror or str(error)).lower()
            expected, remedy = "a file that you may write", "make it yours: chown, chmod"
            raise InputError.of(str(self.path), found, expected, remedy) from None
        return entry

    def _write(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("rb+" if self.path.exists() else "xb") as file:
            file.truncate(_whole_lines(self.path))
            file.seek(0, os.SEEK_END)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def in_utc(time: datetime) -> str:
    """A time in UTC, in the one form of ISO 8601 that a journal has."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def _whole_lines(path: Path) -> int:
    """The length of a file up to the end of its last whole line, in bytes."""
    return path.read_bytes().rfind(b"\n") + 1


def parse_entries(text: str, path: Path) -> Iterator[Entry]:
    """The entries of a journal's text.

    Raises:
        InputError: a line is no entry.
    """
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            return  # cut off by a crash
        try:
            data = json.loads(line)
            kind, time, content = (data[key] for key in ("kind", "time", "content"))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _damaged(path, number, "a line that is no entry") from None
        if not isinstance(kind, str):
            raise _damaged(path, number, "an entry of no kind")
        if not isinstance(content, dict):
            raise _damaged(path, number, "an entry without content")
        if not _is_time(time):
            raise _damaged(path, number, "an entry without the time at which it was made")
        for key, form in _NEEDED.get(kind, {}).items():
            if not isinstance(content.get(key), form):
                raise _damaged(path, number, f"an entry ({kind}) without its {key}")
        yield Entry(kind, time, content)


def _is_time(text: object) -> TypeGuard[str]:
    """Whether it is a time as `in_utc` writes it; which submission counts depends on it."""
    try:
        return isinstance(text, str) and in_utc(datetime.fromisoformat(text)) == text
    except (ValueError, OverflowError):  # no time, or one at the end of all years
        return False


def _damaged(path: Path, line: int, found: str) -> InputError:
    where = f"{path}:{line}" if line else str(path)
    remedy = (
        "restore the file from a backup; to begin again: cd .. and testbed lab start LAB --reset"
    )
    return InputError.of(where, found, "the journal that testbed lab writes", remedy)
