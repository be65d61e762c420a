"""Files of a run are there as a whole or not at all, whenever the process that writes is killed."""

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from testbed.model.errors import InputError, MachineError
from testbed.rights import acting_for

_PART = re.compile(r"\..+\.[0-9a-f]{8}\Z")
"""The name of a file that is being written."""


def write_file(path: Path, content: str | bytes | memoryview) -> Path:
    """Write a file as a whole, in the place of one that is there; return its path.

    Texts are written as UTF-8. A link that has its name, or that of the file that is being written,
    is not followed.

    Raises:
        OSError: it cannot be written; then it is as before.
    """
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write within the block, as `write_file`; if the block fails, it is as before."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def remove_parts(directory: Path) -> None:
    """Remove what killed processes have left of files that they were writing in a directory."""
    for path in directory.glob(".*"):
        if _PART.match(path.name):
            path.unlink(missing_ok=True)


@contextmanager
def writing(option: str, path: Path, kind: str = "a file to write") -> Iterator[None]:
    """Write to the path of an option in a block, as the one whose place it is (`acting_for`).

    Raises:
        InputError: the block could not write.
        MachineError: no space is left.
    """
    try:
        with acting_for(path.parent):
            yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            what = f"no space is left on the file system of {path}"
            raise MachineError(what, "free some, or write elsewhere") from None
        reason = (error.strerror or str(error)).lower()
        raise InputError.of(option, str(path), f"{kind} ({reason})") from None
