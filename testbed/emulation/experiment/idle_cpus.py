"""Keep idle CPUs awake while a run lasts: a CPU that sleeps reacts late.

A CPU takes up to some hundred microseconds to leave a sleep state. A virtual CPU that sleeps gives
its place to others of the host, and may wait for milliseconds until it gets it back (steal time).
A process that requests no latency through `/dev/cpu_dma_latency` (the kernel's
admin-guide/pm/cpuidle.rst) has idle CPUs poll instead, for as long as it keeps the file open.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.rights import as_root

DEVICE = Path("/dev/cpu_dma_latency")
_NO_LATENCY_US = struct.pack("=i", 0)


@contextmanager
def cpus_awake() -> Iterator[str | None]:
    """Keep idle CPUs awake during a block, where that is possible.

    Yields the reason why it is not, as in many containers; None where it is.
    """
    missing = None
    with ExitStack() as stack:
        try:
            with as_root():
                request = os.open(DEVICE, os.O_WRONLY)
        except OSError as error:
            missing = f"{DEVICE}: {error.strerror}"
        else:
            stack.callback(os.close, request)
            os.write(request, _NO_LATENCY_US)
        yield missing
