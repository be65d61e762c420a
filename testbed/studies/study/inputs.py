"""The files that a study is made of, kept beside its results, so that it can be made again."""

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.model.errors import InputError
from testbed.model.files.catalog import is_path
from testbed.model.files.own_code import files_of
from testbed.model.files.reading import read_document
from testbed.model.own_code import REFERENCE
from testbed.results.whole_file import write_file

FOLDER = "inputs"
"""The directory of the copies, below the study's."""

NAMES_FILES = {"topology", "base", "scenario"}
"""Keys whose value is the path of a file, or a name."""

OF_WORKLOADS = {"matrix", "file", "groups"}
"""Keys of workloads whose value is the path of a file, or what those of traces begin with."""

OF_PROGRAMS = {"command", "check", "env"}
"""Keys whose words are those of programs, which know what they mean."""

_YAML = {".yaml", ".yml"}


@dataclass(frozen=True, slots=True)
class Inputs:
    """A study's file and what it names by a path, as they are before the first run.

    Attributes:
        study: the copy of the study's file, relative to the study's directory.
        contents: those of all files, by the places of their copies.
    """

    study: Path
    contents: Mapping[Path, bytes]

    def write(self, directory: Path) -> None:
        """Write the copies into the study's directory."""
        for place, content in self.contents.items():
            (directory / place).parent.mkdir(parents=True, exist_ok=True)
            write_file(directory / place, content)


def inputs_of(file: Path, *, portable: bool) -> Inputs:
    """Read a study's file and what it names: scenarios, topologies, traffic, code of its own.

    What ships with the testbed is left out: the commit says which it is.

    Args:
        file: the study's.
        portable: whether it is to be made on other machines; else absolute paths are left out.

    Raises:
        InputError: a path is absolute, though it is to be portable.
    """
    files = _files(Path(os.path.abspath(file)), portable=portable)  # noqa: PTH100 - links stay
    root = Path(os.path.commonpath([each.parent for each in files]))
    places = {Path(FOLDER, each.relative_to(root)): each.read_bytes() for each in files}
    return Inputs(next(iter(places)), places)


def _files(first: Path, *, portable: bool) -> list[Path]:
    """A file, then those that it names, and those that they name."""
    files = {first: None}
    waiting = [first]
    while waiting:
        for path in _named_by(waiting.pop(), portable=portable):
            if path not in files:
                files[path] = None
                waiting.append(path)
    return [*files]


def _named_by(file: Path, *, portable: bool) -> Iterator[Path]:
    if file.suffix == ".py":
        yield from files_of(file)
    if file.suffix not in _YAML:
        return
    for named in _named(read_document(file).data, ""):
        if Path(named).is_absolute():
            if portable:
                expected = "a path relative to the file, which leads there on other machines, too"
                raise InputError.of(str(file), named, expected)
            continue
        path = Path(os.path.normpath(file.parent / named))
        if path.is_file():
            yield path
        else:
            yield from sorted(path.parent.glob(f"{glob.escape(path.name)}.[0-9]*.et"))


def _named(value: Any, key: str) -> Iterator[str]:
    """The paths that a part of a file names."""
    if isinstance(value, dict):
        for inner, part in value.items():
            last = inner.rpartition(".")[2]
            if last in OF_PROGRAMS:
                continue
            yield from _named(part, "scenario" if key == "scenarios" else last)
    elif isinstance(value, list):
        for part in value:
            yield from _named(part, key)
    elif isinstance(value, str) and (code := REFERENCE.fullmatch(value)) is not None:
        yield code[1]
    elif isinstance(value, str) and (
        key in OF_WORKLOADS or (key in NAMES_FILES and is_path(value))
    ):
        yield value
