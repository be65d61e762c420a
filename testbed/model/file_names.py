"""Whether a file that somebody names is there, whatever the name."""

import errno
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
