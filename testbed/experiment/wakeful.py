"""Keep idle CPUs awake while a run lasts: one that sleeps comes late.

To leave a sleep state takes a CPU up to some hundred microseconds. A virtual one that sleeps gives
its place to others of the host, and may wait for milliseconds until it gets it back (steal). Asked
through `/dev/cpu_dma_latency` (the kernel's admin-guide/pm/cpuidle.rst) for no latency at all, idle
CPUs poll instead, for as long as the file is open: what ends this process ends that, too.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

DEVICE = Path("/dev/cpu_dma_latency")
_NO_LATENCY_US = struct.pack("=i", 0)


@contextmanager
def cpus_awake() -> Iterator[str | None]:
    """Keep them awake, where that is possible: a run elsewhere is as good as its CPUs wake up.

    Yields why it is not, as in many containers; None where it is.
    """
    missing = None
    with ExitStack() as stack:
        try:
            request = os.open(DEVICE, os.O_WRONLY)
        except OSError as error:
            missing = f"{DEVICE}: {error.strerror}"
        else:
            stack.callback(os.close, request)
            os.write(request, _NO_LATENCY_US)
        yield missing
