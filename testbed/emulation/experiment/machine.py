"""How busy the machine was during a run, and what its kernel dropped."""

import contextlib
import os
import platform
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.model.errors import LateError
from testbed.model.faults.record import FAULTS, FaultRecord
from testbed.model.run_files.content import HealthSample
from testbed.model.run_files.layout import HEALTH
from testbed.model.units import NS_PER_S
from testbed.results.analysis.lateness import lasting_lateness
from testbed.rights import as_root

INTERVAL_NS = NS_PER_S
_NICE, _IDLE, _IOWAIT, _SOFTIRQ, _STEAL = 1, 3, 4, 6, 7
"""Columns of /proc/stat (proc_stat(5)). *Nice* is what programs of low priority used. In softirqs
the kernel receives, queues and forwards packets, whoever sent them; stolen is what a virtual
machine wanted and its host gave to others."""

_COLUMNS = 8
"""What follows them, time of guests, is in user time as well."""

ALL_CPUS = "cpu"
"""The line of /proc/stat about all CPUs."""


class MachineSampler:
    """Appends a line a second about the whole machine to health.jsonl.

    Drops are counted from the creation of the sampler, so those of the first second show as well.
    """

    def __init__(self, path: Path, now_ns: int, drops: Mapping[str, int]) -> None:
        """Begin; `drops` are cumulative counters, which `sample` is given again."""
        self._path = path
        self._drops_before = _all_drops(drops)
        self._since_ns = now_ns
        self._cpus = cpu_ticks()
        self._timer_late_ns = 0

    def record_timer_delay(self, late_ns: int) -> None:
        """Record how much later than planned a sleep ended, in ns."""
        self._timer_late_ns = max(self._timer_late_ns, late_ns)

    @property
    def due_ns(self) -> int:
        return self._since_ns + INTERVAL_NS

    def sample(self, now_ns: int, drops: Mapping[str, int], pids: Mapping[str, int]) -> None:
        """Write a line for the time since the last.

        Args:
            now_ns: the time.
            drops: the same cumulative counters as at the beginning.
            pids: the processes whose resident memory is sampled, by name.
        """
        cpus = cpu_ticks()
        spent = {
            name: [new - old for new, old in zip(cpus[name], self._cpus[name], strict=True)]
            for name in cpus.keys() & self._cpus.keys()  # a CPU may come or go
        }
        shares = {name: busy_share(ticks) for name, ticks in spent.items()}
        of_all = spent[ALL_CPUS]
        total = max(sum(of_all), 1)
        sample = HealthSample(
            t_ns=now_ns,
            process="machine",
            interval_ns=now_ns - self._since_ns,
            cpus=os.cpu_count(),
            busy_share=shares.pop(ALL_CPUS),
            softirq_share=of_all[_SOFTIRQ] / total,
            stolen_share=of_all[_STEAL] / total,
            cores=dict(sorted(shares.items())),
            timer_late_ns=self._timer_late_ns,
            resident_bytes=resident(pids),
            drops={
                name: count - self._drops_before.get(name, 0)
                for name, count in _all_drops(drops).items()
            },
        )
        with self._path.open("a", encoding="utf-8") as file:
            file.write(sample.to_line())
        self._since_ns, self._timer_late_ns, self._cpus = now_ns, 0, cpus


def resident(pids: Mapping[str, int]) -> dict[str, int]:
    """Resident memory of processes in bytes, by name; without those that have ended."""
    memory = {}
    for name, pid in pids.items():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
            if pages:  # a zombie has none
                memory[name] = pages * os.sysconf("SC_PAGE_SIZE")
    return memory


def cpu_ticks() -> dict[str, list[int]]:
    """Ticks since boot for each column of /proc/stat, of `cpu` (all CPUs), `cpu0`..."""
    ticks = {}
    for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines():
        name, *fields = line.split()
        if name.startswith(ALL_CPUS):
            ticks[name] = [int(field) for field in fields[:_COLUMNS]]
    return ticks


def busy_share(ticks: Sequence[int]) -> float:
    """How busy a CPU was, 0 to 1, by the ticks that it spent in each column of /proc/stat.

    What programs of low priority used is headroom: they give way. If they do not, event loops wake
    up late, which is measured.
    """
    total = sum(ticks)
    return (total - sum(ticks[i] for i in (_NICE, _IDLE, _IOWAIT))) / total if total else 0.0


def _all_drops(drops: Mapping[str, int]) -> dict[str, int]:
    return {"softnet": softnet_drops(), **drops}


def softnet_drops() -> int:
    """Packets that the kernel's receive queues dropped since boot, on all CPUs."""
    lines = Path("/proc/net/softnet_stat").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


# --------------------------------------------------------------------------------------------------
# Keep idle CPUs awake while a run lasts: a CPU that sleeps reacts late.
#
# A CPU takes up to some hundred microseconds to leave a sleep state. A virtual CPU that sleeps
# gives its place to others of the host, and may wait for milliseconds until it gets it back (steal
# time). A process that requests no latency through `/dev/cpu_dma_latency` (the kernel's admin-
# guide/pm/cpuidle.rst) has idle CPUs poll instead, for as long as it keeps the file open.


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


# --------------------------------------------------------------------------------------------------
# Ends a run with `--stop-if-late` once the machine was so late that it cannot be trusted.


class LatenessMonitor:
    """Reads the lateness that the processes of a run record while it goes on."""

    def __init__(self, directory: Path, t0_ns: int, base_rtt_ns: int) -> None:
        self._directory = directory
        self._t0_ns = t0_ns
        self._base_rtt_ns = base_rtt_ns
        self._samples: list[HealthSample] = []
        self._read_bytes = 0

    def check(self) -> None:
        """Read the samples that were recorded since the last call.

        Raises:
            LateError: a process was so late that no later sample can make the run trusted.
        """
        with (self._directory / HEALTH).open("rb") as file:
            file.seek(self._read_bytes)
            lines = [line for line in file if line.endswith(b"\n")]
        self._read_bytes += sum(map(len, lines))
        samples = (HealthSample.model_validate_json(line) for line in lines)
        self._samples += (sample for sample in samples if sample.t_ns >= self._t0_ns)
        records = (self._directory / FAULTS).read_text(encoding="utf-8").splitlines()
        faults = [FaultRecord.from_line(line) for line in records]
        for _, reason in lasting_lateness(self._samples, faults, self._base_rtt_ns):
            after_s = (self._samples[-1].t_ns - self._t0_ns) / NS_PER_S
            raise LateError(f"ended after {after_s:.0f} s, as it could not be trusted: {reason}")
