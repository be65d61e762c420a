"""Python processes that the testbed starts. None imports from the current directory.

With `-m` and `-c` Python looks for modules in the current directory first, and so it does for an
empty entry of PYTHONPATH: a `json.py` beside the files that a command is given would be executed.
So `-P` is on every command line, PYTHONSAFEPATH=1 in every environment, for further processes, and
each process starts in a directory that no user writes to, unless it needs another one. Code of
students has `-I`: it also has no PYTHONPATH and no packages of the user.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SAFE_PATH, _PATH = "PYTHONSAFEPATH", "PYTHONPATH"

NEUTRAL = Path(sys.prefix).anchor
"""The root directory: every process may be in it, and only root writes there."""


def python(*arguments: str | Path, isolated: bool = False) -> tuple[str, ...]:
    """The command line of a Python process."""
    return sys.executable, "-I" if isolated else "-P", *map(str, arguments)


TESTBED = python("-m", "testbed")
"""The command line of `testbed`: the one that is installed, whatever is in the current directory.

docs/campaigns.md has it in a rule of sudo.
"""


def environment(**more: str) -> dict[str, str]:
    """This process's environment for a Python process, with further variables.

    The current directory is no entry of PYTHONPATH, and the others are absolute.
    """
    variables = {**os.environ, _SAFE_PATH: "1", **more}
    entries = [Path(entry) for entry in variables.pop(_PATH, "").split(os.pathsep) if entry]
    try:
        here = os.path.realpath(Path.cwd()) if entries else ""
    except FileNotFoundError:  # it is deleted
        here, entries = "", [entry for entry in entries if entry.is_absolute()]
    kept = [str(entry.absolute()) for entry in entries if os.path.realpath(entry) != here]
    if kept:
        variables[_PATH] = os.pathsep.join(kept)
    return variables


def start(
    command: Sequence[str],
    *,
    cwd: str | Path = NEUTRAL,
    env: Mapping[str, str] = {},
    **options: Any,
) -> "subprocess.Popen[Any]":
    """Start a process of Python, perhaps behind another command such as sudo.

    Args:
        command: what `python` returns, or begins with.
        cwd: the directory that it starts in.
        env: variables beside those of this process.
        options: further ones of `subprocess.Popen`.
    """
    variables = environment(**env)
    return subprocess.Popen(command, cwd=cwd, env=variables, **options)  # noqa: S603 - ours


def run(
    command: Sequence[str],
    *,
    cwd: str | Path = NEUTRAL,
    env: Mapping[str, str] = {},
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Run a process of Python to its end; `options` are those of `subprocess.run`."""
    variables = environment(**env)
    return subprocess.run(command, cwd=cwd, env=variables, check=False, **options)  # noqa: S603 - ours


@contextmanager
def safe_children() -> Iterator[None]:
    """Have libraries that start Python by themselves, such as multiprocessing, do so safely."""
    before = {name: os.environ.get(name) for name in (_SAFE_PATH, _PATH)}
    variables = environment()
    try:
        for name in before:
            _set(name, variables.get(name))
        yield
    finally:
        for name, value in before.items():
            _set(name, value)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
