"""Files of a run are there as a whole or not at all, whenever the process that writes is killed."""

import os
import re
import secrets
from pathlib import Path

_PART = re.compile(r"\..+\.[0-9a-f]{8}\Z")
"""The name of a file that is being written."""


def write_file(path: Path, content: str | bytes | memoryview) -> Path:
    """Write a file as a whole, in the place of one that is there; return its path.

    Texts are written as UTF-8. A link that has its name, or that of the file that is being written,
    is not followed.

    Raises:
        OSError: it cannot be written; then it is as before.
    """
    raw = content.encode() if isinstance(content, str) else content
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def remove_parts(directory: Path) -> None:
    """Remove what killed processes have left of files that they were writing in a directory."""
    for path in directory.glob(".*"):
        if _PART.match(path.name):
            path.unlink(missing_ok=True)
