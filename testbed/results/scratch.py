"""Temporary directories that are removed whatever is killed."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.model.errors import MachineError

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
