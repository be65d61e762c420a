"""How this copy of the testbed is installed: from a checkout, or from a wheel and with what.

A wheel has the files of a checkout that are not in the package, the commit it was built from, and
Ryu, which pip cannot build any more. `scripts/hatch_build.py` puts them into the package. It loads
this module by itself, so that nothing else of the package may be imported here.
"""

import json
import platform
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).parent
LIBRARIES = PACKAGE / "libraries"
"""Libraries that the wheel brings along."""

COMMIT = PACKAGE / "commit.json"
"""The commit that the wheel was built from, as `commit` returns it."""

_FILES = PACKAGE / "files_of_checkout"
PROJECT = _FILES if _FILES.is_dir() else PACKAGE.parent
"""The directory that has `scenarios`, `topologies` and `docs/schema`."""

EMULATION = ("eventlet", "mininet", "pyroute2", "ryu")
"""The packages without which nothing can be emulated: those of the extra `emulate`."""

DISTRIBUTION = "mrc-testbed"
INSTALL_EMULATION = f"install the testbed with its extra: pip install '{DISTRIBUTION}[emulate]'"


_UNIX = ("fcntl", "pty", "pwd", "resource", "termios", "tty")
"""What Python has on UNIX alone; only what emulates needs it."""


def not_linux() -> tuple[str, str] | None:
    """Why nothing can be emulated on this system, and a remedy; None on Linux."""
    system = platform.system()
    if system == "Linux":
        return None
    name = {"Darwin": "macOS"}.get(system, system)
    return (
        f"fabrics are emulated by the Linux kernel, and this is {name}",
        "testbed simulate works here; a virtual machine with Linux does all: docs/install.md",
    )


def missing_emulation(error: ModuleNotFoundError) -> str | None:
    """What to say where a module is missing that only emulation needs; None if another one is."""
    if error.name is None or error.name.split(".")[0] not in (*EMULATION, *_UNIX):
        return None
    if (elsewhere := not_linux()) is not None:
        what, remedy = elsewhere
        return f"{what}\n  remedy: {remedy}"
    return (
        f"nothing can be emulated here: {error.name} is not installed\n"
        f"  remedy: {INSTALL_EMULATION}; testbed simulate works without it"
    )


def require_emulation() -> None:
    """Make sure that the packages of the extra are installed.

    Raises:
        ModuleNotFoundError: one is not; `missing_emulation` says what to do.
    """
    for name in EMULATION:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def use_libraries() -> None:
    """Make the libraries of the wheel importable, after all that is installed."""
    if LIBRARIES.is_dir() and str(LIBRARIES) not in sys.path:
        sys.path.append(str(LIBRARIES))


def commit() -> dict[str, str | bool] | None:
    """The commit of this code, and whether the code differs from it; None if it is unknown."""
    if COMMIT.exists():
        recorded: dict[str, str | bool] = json.loads(COMMIT.read_text(encoding="utf-8"))
        return recorded
    if PROJECT == _FILES or not (PROJECT / ".git").exists():
        return None
    try:
        return {
            "commit": _git("rev-parse", "HEAD"),
            "modified": any(map(_is_of_code, _git("status", "--porcelain").splitlines())),
        }
    except (OSError, subprocess.CalledProcessError):
        return None


_UNTRACKED = "?? "

_CODE = "testbed/", "scenarios/", "topologies/"


def _is_of_code(change: str) -> bool:
    """Whether a line of `git status` is of the code: users have files of their own there."""
    is_new = change.startswith(_UNTRACKED)
    return not is_new or change.removeprefix(_UNTRACKED).lstrip('"').startswith(_CODE)


def describe_version() -> str:
    """The version with its commit, such as `0.1.0 (commit 1a2b3c4d5e6f, modified)`."""
    known = commit()
    if known is None:
        return f"{version(DISTRIBUTION)} (commit unknown)"
    modified = ", modified" if known["modified"] else ""
    return f"{version(DISTRIBUTION)} (commit {str(known['commit'])[:12]}{modified})"


def _git(*arguments: str) -> str:
    # The checkout may be another user's, such as root's where a class shares it.
    trust = f"safe.directory={PROJECT.resolve()}"
    command = ["git", "-c", trust, "--no-optional-locks", "-C", str(PROJECT), *arguments]
    return subprocess.run(  # noqa: S603 - the user's own git, with our arguments
        command, capture_output=True, text=True, check=True, encoding="utf-8", errors="replace"
    ).stdout.strip()
