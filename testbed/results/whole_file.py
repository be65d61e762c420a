"""Files and directories that are whole or gone, whenever the process that writes them is killed."""

import errno
import os
import re
import secrets
import shutil
import sys
import tempfile
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


_REMEDY = "name another directory for temporary files: TMPDIR=DIR"

_REMOVE = 'read -r _; rm -rf -- "$1"'
"""Waits for a line, or for the end of all processes that hold the other end of its input."""


def temporary_directory() -> Path:
    """The directory for temporary files.

    Raises:
        MachineError: none can be written to.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:  # tempfile has tried several
        raise MachineError(str(error.strerror), _REMEDY) from None


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A directory below the temporary one, of this user alone, during a block.

    A process of its own removes it, when the block ends or this process is killed.

    Raises:
        MachineError: it cannot be made.
    """
    directory = temporary_directory() / f"{prefix}{secrets.token_hex(4)}"
    if sys.platform == "win32":
        _make(directory)
        try:
            yield directory
        finally:
            shutil.rmtree(directory)
        return
    import subprocess  # noqa: PLC0415 - most who write files make no scratch directory

    with subprocess.Popen(  # noqa: S603 - the directory is an argument, no part of the command
        ["/bin/sh", "-c", _REMOVE, "sh", directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": os.defpath},
        start_new_session=True,  # the terminal's Ctrl-C is not for it
    ) as remover:
        try:
            _make(directory)  # it exists only once there is who removes it
            yield directory
        finally:
            remover.communicate(b"\n")


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise MachineError(f"{directory}: {str(error.strerror).lower()}", _REMEDY) from None
