"""What a program costs on one CPU: CPU time and peak of memory."""

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import interpreter

MEGABYTE = 10**6
_LOOK_S = 0.005
"""How often the peak is looked at: a program that has ended has no status any more."""

_PEAK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """What a program came to.

    Attributes:
        status: its exit status; negative where a signal ended it.
        output: what it printed.
        seconds: its CPU time from its start, with that of its children.
        wall_s: how long it took.
        megabytes: the peak of its resident memory.
    """

    status: int
    output: str
    seconds: float
    wall_s: float
    megabytes: float


def one_cpu() -> int:
    """The CPU on which programs are measured: the last that this process may use."""
    return max(os.sched_getaffinity(0))


def peak_megabytes(process: int | str = "self") -> float:
    """The largest resident size of a process; 0 if it has ended.

    That of `getrusage` is another: it counts from the memory of whoever started the process.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except ProcessLookupError:
        return 0.0
    found = _PEAK.search(status)
    return 0.0 if found is None else int(found[1]) * 1024 / MEGABYTE


def cost_of(command: Sequence[str | Path], place: Path) -> ProgramCost:
    """Run a program in a directory of the caller's own and return what it cost."""
    with (place / "output").open("w+", encoding="utf-8") as output:
        began = time.monotonic()
        process = interpreter.start(
            [*map(str, command)], cwd=place, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            os.sched_setaffinity(process.pid, {one_cpu()})
            megabytes, ended = peak_megabytes(process.pid), 0
            while not ended:
                time.sleep(_LOOK_S)
                megabytes = max(megabytes, peak_megabytes(process.pid))
                ended, status, used = os.wait4(process.pid, os.WNOHANG)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        wall_s = time.monotonic() - began
        output.seek(0)
        return ProgramCost(
            status=process.returncode,
            output=output.read(),
            seconds=used.ru_utime + used.ru_stime,
            wall_s=wall_s,
            megabytes=megabytes,
        )
