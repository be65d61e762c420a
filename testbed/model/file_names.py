"""Whether a file that somebody names is there, whatever the name; and names after files."""

import errno
import re
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


def name_after(file: Path, otherwise: str, most: int = 60) -> str:
    """The name of what a file describes, with - for what a name may not have."""
    name = re.sub(r"[^A-Za-z0-9._-]+|^[^A-Za-z0-9]+", "-", file.stem)[:most]
    return name.strip("-") or otherwise
