"""Which code a run was made by: part of what identifies the run."""

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
WITHOUT_INFLUENCE = frozenset(
    (
        "bench",
        "campaign",
        "cli",
        "drawings",
        "files_of_checkout",
        "interface",
        "labs",
        "libraries",
        "paper",
        "perftest",
    )
)
"""What plans, starts, judges or shows runs, or comes with a wheel: a change changes no run."""

SUFFIXES = frozenset({".py", ".c", ".h"})


@cache
def code_version() -> str:
    """A digest of the sources that decide what a run comes to; every manifest holds it."""
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*")):
        path = file.relative_to(PACKAGE)
        if file.suffix in SUFFIXES and path.parts[0] not in WITHOUT_INFLUENCE:
            digest.update(f"{path} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]
