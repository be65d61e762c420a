"""Whether a file that somebody names is there, whatever the name; and names after files."""

import errno
import re
import sys
from collections.abc import Callable
from pathlib import Path

NOT_USABLE = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR})
"""Errors of a path that whoever names it can mend."""


def is_there(file: Path, check: Callable[[Path], bool] = Path.exists) -> bool:
    """Whether a file exists, or passes another check; none does at a path that cannot be used."""
    try:
        return check(file)
    except OSError as error:
        if error.errno not in NOT_USABLE:
            raise
        return False


def for_directory(name: str, most_bytes: int) -> str:
    """As much of a name as a directory may be called: its letters, digits and some signs.

    A letter that the file system's encoding lacks, which the locale decides, becomes _ as well.
    """
    encoding = sys.getfilesystemencoding()
    possible = name.encode(encoding, errors="replace").decode(encoding)
    readable = re.sub(r"[^\w.=,+-]+", "_", possible)
    return readable.encode()[:most_bytes].decode(errors="ignore")


def name_after(file: Path, otherwise: str, most: int = 60) -> str:
    """The name of what a file describes, with - for what a name may not have."""
    name = re.sub(r"[^A-Za-z0-9._-]+|^[^A-Za-z0-9]+", "-", file.stem)[:most]
    return name.strip("-") or otherwise
