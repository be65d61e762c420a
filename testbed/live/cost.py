"""What being watched costs: the CPU time of the watching process and of the page's server."""

import os
import time
from pathlib import Path

from testbed.model.run_files.health import PAGE_SERVER, WATCHER, HealthSample
from testbed.model.units import NS_PER_S

_TICK_NS = NS_PER_S // os.sysconf("SC_CLK_TCK")
_UTIME = 11
"""Index of utime, then stime, in /proc/PID/stat behind the name: proc(5)."""


class CostLog:
    """Appends a line a second for each of the two processes to `health.jsonl` of a run."""

    def __init__(self, health: Path) -> None:
        """Begin now."""
        self._health = health
        self._since_ns = time.monotonic_ns()
        self._own_ns = time.process_time_ns()
        self._server = (0, 0)

    def write(self, server: int) -> None:
        """Write the lines if they are due; `server` is the PID of the page's server."""
        now_ns = time.monotonic_ns()
        interval_ns = now_ns - self._since_ns
        if interval_ns < NS_PER_S:
            return
        own_ns, server_ns = time.process_time_ns(), cpu_ns(server)
        before = self._server[1] if self._server[0] == server else server_ns
        spent = {WATCHER: own_ns - self._own_ns, PAGE_SERVER: server_ns - before}
        lines = [
            HealthSample(t_ns=now_ns, process=name, interval_ns=interval_ns, cpu_ns=used).to_line()
            for name, used in spent.items()
        ]
        with self._health.open("ab", buffering=0) as file:
            file.write("".join(lines).encode())
        self._since_ns, self._own_ns, self._server = now_ns, own_ns, (server, server_ns)


def cpu_ns(pid: int) -> int:
    """CPU time that a process has used; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_UTIME + 1])) * _TICK_NS
