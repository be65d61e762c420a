"""The files that a study is made of, kept beside its results, so that it can be made again."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import escape
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

_NAMES_FILES = {"topology", "base", "scenario"}
_TRAFFIC = {"matrix", "file", "groups"}
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
    files = list(dict.fromkeys(_files(Path(os.path.abspath(file)), portable=portable)))  # noqa: PTH100 - links stay
    root = Path(os.path.commonpath([each.parent for each in files]))
    places = {Path(FOLDER, each.relative_to(root)): each.read_bytes() for each in files}
    return Inputs(next(iter(places)), places)


def _files(file: Path, *, portable: bool) -> Iterator[Path]:
    """A file, then those that it names, and those that they name."""
    if file.suffix not in _YAML:
        yield from files_of(file) if file.suffix == ".py" else [file]
        return
    yield file
    for named in _named(read_document(file).data, ""):
        if Path(named).is_absolute():
            if portable:
                expected = "a path relative to the file, which leads there on other machines, too"
                raise InputError.of(str(file), named, expected)
            continue
        path = Path(os.path.normpath(file.parent / named))
        if path.is_file() and path != file:
            yield from _files(path, portable=portable)
        if path != file:
            yield from sorted(path.parent.glob(f"{escape(path.name)}.*.et"))  # Chakra's traces


def _named(value: Any, key: str) -> Iterator[str]:
    """The paths that a part of a file names."""
    if isinstance(value, dict):
        for inner, part in value.items():
            last = inner.rpartition(".")[2]
            yield from _named(part, "scenario" if key == "scenarios" else last)
    elif isinstance(value, list):
        for part in value:
            yield from _named(part, key)
    elif isinstance(value, str) and (code := REFERENCE.fullmatch(value)) is not None:
        yield code[1]
    elif isinstance(value, str) and (key in _TRAFFIC or (key in _NAMES_FILES and is_path(value))):
        yield value
