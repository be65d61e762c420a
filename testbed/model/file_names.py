"""Whether a file that somebody names is there, whatever the name."""

import errno
from collections.abc import Callable
from pathlib import Path


def is_there(file: Path, check: Callable[[Path], bool] = Path.exists) -> bool:
    """Whether a file exists, or passes another check; none has a name that is too long for any."""
    try:
        return check(file)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False
