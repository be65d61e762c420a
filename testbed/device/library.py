"""The library that shows the device to programs: found ready, or compiled.

It is plain C and needs nothing but the C library and the kernel's headers. A wheel has it ready for
the architecture on which it was built; elsewhere it is compiled when a fabric starts, if there is
a C compiler.
"""

import hashlib
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.model.errors import MachineError

SOURCES: Final = Path(__file__).with_name("library")
READY: Final = SOURCES / "ready" / platform.machine()
"""Where a wheel, and `make setup`, have it."""

PRELOAD: Final = "libmrc-preload.so"
"""For programs that are linked to libibverbs: without symbol versions, to be preloaded."""

IBVERBS: Final = "libmrc-ibverbs.so.1"
"""The same with libibverbs' symbol versions, for programs that load a library by its path."""

SUMS: Final = "sources.sha256"

_FLAGS: Final = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-shared", "-Wall", "-Wextra")
_VERSIONED: Final = ("-Wl,-soname,libmrc-ibverbs.so.1", "-Wl,--version-script=versions.map")
_C_FILES: Final = ("device.c", "entry.c")
_COMPILE_S: Final = 120


@dataclass(frozen=True, slots=True)
class Library:
    """The two files.

    Attributes:
        preload: see `PRELOAD`.
        ibverbs: see `IBVERBS`.
    """

    preload: Path
    ibverbs: Path


def sources_sum() -> str:
    """A checksum of the sources and of how they are compiled."""
    total = hashlib.sha256(repr((_FLAGS, _VERSIONED)).encode())
    for file in sorted(SOURCES.glob("*.[chm]*")):
        total.update(file.name.encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def put_into(directory: Path) -> Library:
    """Put the library into a directory, whose path has no space or colon in it (ld.so(8)).

    Raises:
        MachineError: it is not ready, and cannot be compiled.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if is_ready():
        for name in (PRELOAD, IBVERBS):
            shutil.copy(READY / name, directory / name)
    else:
        compile_into(directory)
    return Library(directory / PRELOAD, directory / IBVERBS)


def is_ready() -> bool:
    """Whether there is a compiled library of these sources for this machine."""
    sums = READY / SUMS
    return sums.is_file() and sums.read_text(encoding="utf-8").strip() == sources_sum()


def compile_into(directory: Path) -> None:
    """Compile both files.

    Raises:
        MachineError: there is no C compiler, or it fails.
    """
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise MachineError(
            f"the MRC device's library is not ready for {platform.machine()}, and there is no C "
            "compiler",
            "apt install gcc libc6-dev",
        )
    for name, options in ((PRELOAD, ()), (IBVERBS, _VERSIONED)):
        command = [compiler, *_FLAGS, *options, "-o", str(directory / name), *_C_FILES, "-ldl"]
        try:
            done = subprocess.run(  # noqa: S603 - the compiler of this machine
                command,
                cwd=SOURCES,
                capture_output=True,
                text=True,
                timeout=_COMPILE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed(compiler, str(error)) from error
        if done.returncode:
            raise _failed(compiler, done.stderr)


def _failed(compiler: str, why: str) -> MachineError:
    return MachineError(
        f"{compiler} cannot compile the MRC device's library: {why.strip()}",
        "apt install gcc libc6-dev",
    )


def make_ready() -> None:
    """Compile it into the package: for `make setup` and for wheels.

    Raises:
        MachineError: there is no C compiler, or it fails.
    """
    if is_ready():
        return
    shutil.rmtree(READY, ignore_errors=True)
    READY.mkdir(parents=True)
    compile_into(READY)
    (READY / SUMS).write_text(f"{sources_sum()}\n", encoding="utf-8")
