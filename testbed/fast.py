"""The protocol core as C: whether `make fast` has built it, and whether it is still of its source.

mypyc compiles the very files of `testbed/mrc`; Python prefers what it makes of them, beside them.
"""

from pathlib import Path

from testbed.model.errors import MachineError

_PACKAGE = Path(__file__).parent


def is_built() -> bool:
    """Whether the core runs as C."""
    return any(_PACKAGE.glob("mrc/*.so"))


def check() -> None:
    """Check that a build is as new as its source.

    Raises:
        MachineError: the source has changed since.
    """
    built = [file.stat().st_mtime for file in _PACKAGE.glob("mrc/*.so")]
    source = [file.stat().st_mtime for file in _PACKAGE.glob("mrc/*.py")]
    if built and min(built) < max(source):
        raise MachineError(
            "the fast build of testbed/mrc is older than its source",
            "make fast builds it again, make slow removes it",
        )
