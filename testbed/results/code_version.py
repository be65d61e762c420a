"""Digests of the code: of the part that decides a run's results, and of all that a worker has."""

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]

WITH_A_WHEEL = frozenset(("files_of_checkout", "libraries"))
"""What a wheel has beside the sources."""

WITHOUT_INFLUENCE = WITH_A_WHEEL | {
    "cli",
    "drawings",
    "emulation/perftest",
    "runs",
    "studies",
}
"""What plans, starts, judges or shows runs, or comes with a wheel: it changes no result."""

SUFFIXES = frozenset({".py", ".c", ".h"})


@cache
def code_version() -> str:
    """A digest of the sources that decide the results of a run; every manifest holds it."""
    return _digest(WITHOUT_INFLUENCE)


@cache
def package_version() -> str:
    """A digest of all sources. A worker is sent calls of any of them, such as a part of the bench.

    Manifests do not hold it: a change of the report alone does not outdate a finished run.
    """
    return _digest(WITH_A_WHEEL)


def _digest(without: frozenset[str]) -> str:
    """A digest of the package's sources, without these folders."""
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*")):
        path = file.relative_to(PACKAGE)
        places = (path.with_suffix(""), *path.parents)
        if file.suffix in SUFFIXES and without.isdisjoint(place.as_posix() for place in places):
            digest.update(f"{path} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]
