"""Compiles the library that shows the device to programs.

Nothing of the project is imported here: the build of a wheel loads this file by itself, and
`make setup` runs it.
"""

import hashlib
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).with_name("c")
READY: Final = SOURCES / "ready" / platform.machine()
"""Where a wheel, and `make setup`, have the compiled library."""

PRELOAD: Final = "libmrc.so"
"""For programs that are linked to libibverbs: without symbol versions, to be preloaded. It is OCP's
library for MRC programs as well: one that is linked to libmrc has it already."""

ALIASES: Final = ("lib_mrc.so", "libnv_mrc.so")
"""Other names under which programs load that library."""

IBVERBS: Final = "libmrc-ibverbs.so.1"
"""The same with libibverbs' symbol versions, for programs that load a library by its path."""

_SUM: Final = "sources.sha256"
_FLAGS: Final = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    "-pthread",
    "-Wall",
    "-Wextra",
)
_NAMED: Final = (f"-Wl,-soname,{PRELOAD}",)
_VERSIONED: Final = (f"-Wl,-soname,{IBVERBS}", "-Wl,--version-script=versions.map")
_C_FILES: Final = (
    "device.c",
    "entry.c",
    "mptcp.c",
    "mrc.c",
    "mrc_ctl.c",
    "names.c",
    "payload.c",
)
_COMPILE_S: Final = 600


class CompilingError(Exception):
    """There is no C compiler, or it fails."""


def is_ready(ready: Path = READY) -> bool:
    """Whether there is a compiled library of these sources for this machine."""
    sums = ready / _SUM
    return sums.is_file() and sums.read_text(encoding="utf-8").strip() == _sources_sum()


def make_ready(ready: Path = READY) -> None:
    """Compile the library into a directory, with the checksum of its sources.

    Raises:
        CompilingError: it cannot be compiled.
    """
    if is_ready(ready):
        return
    shutil.rmtree(ready, ignore_errors=True)
    ready.mkdir(parents=True)
    compile_into(ready)
    (ready / _SUM).write_text(f"{_sources_sum()}\n", encoding="utf-8")


def compile_into(directory: Path, *further: str) -> None:
    """Compile both files into a directory, with further options of the compiler.

    Raises:
        CompilingError: it cannot be compiled.
    """
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise CompilingError("there is no C compiler")
    for name, options in ((PRELOAD, _NAMED), (IBVERBS, _VERSIONED)):
        output = str(directory / name)
        command = [compiler, *_FLAGS, *further, *options, "-o", output, *_C_FILES, "-ldl"]
        try:
            done = subprocess.run(  # noqa: S603 - the compiler of this machine
                command,
                cwd=SOURCES,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=_COMPILE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompilingError(str(error)) from error
        if done.returncode:
            raise CompilingError(f"{compiler}: {done.stderr.strip()}")


def _sources_sum() -> str:
    total = hashlib.sha256(repr((_FLAGS, _NAMED, _VERSIONED)).encode())
    for file in sorted(path for path in SOURCES.iterdir() if path.is_file()):
        total.update(file.name.encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


if __name__ == "__main__":
    try:
        make_ready()
    except CompilingError as problem:
        raise SystemExit(str(problem)) from problem
