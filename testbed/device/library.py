"""The library that shows the device to programs: found ready, or compiled.

It is plain C and needs nothing but the C library and the kernel's headers. A wheel has it ready for
the architecture on which it was built; elsewhere it is compiled when a fabric starts.
"""

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.device.compiling import (
    ALIASES,
    IBVERBS,
    PRELOAD,
    READY,
    CompilingError,
    compile_into,
    is_ready,
)
from testbed.model.errors import MachineError
from testbed.sandbox.namespaces import NETNS_DIR

IN_HOSTS: Final = NETNS_DIR.parent / "mrc"
"""Where a sandbox has it, in its own /run: no space is in this path, wherever the project is."""

_SEPARATORS: Final = " :;$\t\n"
"""Of paths in the loader's variables, and what it replaces there."""

_TORCH: Final = Path(__file__).with_name("torch_mrc.py")
"""For the Python that has torch, which has nothing else of the testbed."""


@dataclass(frozen=True, slots=True)
class Library:
    """Its files.

    Attributes:
        preload: for programs that are linked to libibverbs, and for those of mrc.h.
        ibverbs: for programs that load a library by its path.
    """

    preload: Path
    ibverbs: Path

    def environment(self, of: Mapping[str, str]) -> dict[str, str]:
        """What a program needs in its environment, whose other variables are given."""

        def before(name: str, own: Path | str) -> str:
            return ":".join(filter(None, (str(own), of.get(name))))

        return {
            "LD_PRELOAD": before("LD_PRELOAD", self.preload),
            "LD_LIBRARY_PATH": before("LD_LIBRARY_PATH", self.preload.parent),
            "NCCL_IBVERBS_LIB": str(self.ibverbs),
            # A program with the address sanitizer does not start behind another library otherwise.
            "ASAN_OPTIONS": before("ASAN_OPTIONS", "verify_asan_link_order=0"),
            "PYTHONPATH": before("PYTHONPATH", self.preload.parent),
        }


def put_into(directory: Path) -> Library:
    """Put the library into a directory, from where programs load it (ld.so(8)).

    Raises:
        MachineError: it is not ready, and cannot be compiled; nothing can be loaded from there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _require_loadable(directory)
    if is_ready():
        for name in (PRELOAD, IBVERBS):
            shutil.copy(READY / name, directory / name)
    else:
        try:
            compile_into(directory)
        except CompilingError as error:
            raise MachineError(
                f"its library is not ready for {platform.machine()}, and not compiled: {error}",
                "apt install gcc libc6-dev",
            ) from error
    for name in ALIASES:
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(PRELOAD)
    shutil.copy(_TORCH, directory / _TORCH.name)
    return Library(directory / PRELOAD, directory / IBVERBS)


def _require_loadable(directory: Path) -> None:
    """Check that the loader takes libraries from a directory.

    Raises:
        MachineError: it does not.
    """
    why = ""
    if set(str(directory)) & set(_SEPARATORS):
        why = "the loader takes no path with a space, a colon, a semicolon or $ in it"
    elif os.statvfs(directory).f_flag & os.ST_NOEXEC:
        why = "it is mounted noexec"
    if why:
        what = f"programs cannot load the device's library from {directory}: {why}"
        raise MachineError(what, "name another directory for temporary files: TMPDIR=DIR")
