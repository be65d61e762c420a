"""The machine: how busy it was during a run, what its kernel dropped, and what it carries.

What it carries is measured once, saved, and compared with what a scenario needs. The measure is CPU
time: of the two endpoints for each data packet, and of the kernel for each link that a packet
crosses. A scenario offers flows x packets/s; their CPU time as a share of all CPUs is the load to
expect. An endpoint runs on one CPU at a time, so its own share counts as well.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import platform
import stat
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from testbed import fast
from testbed.host.plan import ENDPOINT_ROUNDS_PER_RTT
from testbed.installation import DISTRIBUTION
from testbed.limits import usable_cpus
from testbed.model.errors import LateError, MachineError
from testbed.model.faults.record import FAULTS, FaultRecord
from testbed.model.flows import LINKS_ACROSS, LINKS_WITHIN, fair_shares_bps
from testbed.model.run_files.content import HealthSample
from testbed.model.run_files.layout import HEALTH
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S, show_duration, show_share
from testbed.results.analysis.lateness import (
    LAG_P99_DEGRADED_RTT,
    LAG_P99_INVALID_RTT,
    lasting_lateness,
)
from testbed.results.whole_file import temporary_directory, write_file
from testbed.rights import acting_for, as_root, caller

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


WARN_LOAD = 0.7
"""Expected share of the CPUs above which a run will probably be degraded."""

TARGET_LOAD = 0.6
"""Expected share at which `dilation: auto` aims: a busier moment than the one in which the machine
was measured must not take it beyond the share that is warned of."""

REFUSE_LOAD = 1.5
"""Above this share a run would measure the machine: it is refused unless forced."""

POLL_SHARE = 0.02
"""CPU time that one more queue pair takes in each round of an endpoint, as a share of the time that
a packet takes at its two ends: 2 to 4 us of 175 us. It matters for hosts with a hundred QPs."""

CALIBRATION = 6
"""The version of the measurement; it increases when the meaning of a value changes."""

_DILATION_STEP = 100

_TIMES = 10
"""From this share on, it is shown as a multiple instead of in percent."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """CPU time that a data packet costs here, its share of acknowledgements included.

    Attributes:
        endpoint_ns: at the two endpoints together.
        link_ns: on each link.
        cpus: how many CPUs' time may be used.
        lag_ns: how late event loops woke during the measurement, 99th percentile, in ns. It does
            not depend on the fabric's round trip.
    """

    endpoint_ns: float
    link_ns: float
    cpus: float
    lag_ns: float = 0.0

    def load(self, scenario: Scenario) -> float:
        """The share of the CPUs that a scenario takes, 1.0 being all of them.

        If an endpoint takes a larger share of the one CPU that it can use, that share.
        """
        topology = scenario.topology
        whole_ns = 0.0
        shares_bps = fair_shares_bps(scenario)
        endpoints_ns: dict[str, float] = defaultdict(float)
        rack = cache(topology.rack_named)
        packet_bits = 8 * topology.wire_bytes
        within_ns, across_ns = (
            self.endpoint_ns + links * self.link_ns for links in (LINKS_WITHIN, LINKS_ACROSS)
        )
        for number, (src, dst, _) in enumerate(scenario.flows):
            packets_per_s = shares_bps[number] / packet_bits
            whole_ns += packets_per_s * (within_ns if rack(src) == rack(dst) else across_ns)
            end_ns = packets_per_s * self.endpoint_ns / 2
            endpoints_ns[src] += end_ns
            endpoints_ns[dst] += end_ns
        rounds_per_s = ENDPOINT_ROUNDS_PER_RTT * NS_PER_S / topology.propagation_rtt_ns
        for host, more in _further_queue_pairs(scenario).items():
            polling_ns = more * rounds_per_s * POLL_SHARE * self.endpoint_ns
            whole_ns += polling_ns
            endpoints_ns[host] += polling_ns
        busiest_ns = max(endpoints_ns.values(), default=0)
        return max(whole_ns / self.cpus, busiest_ns / min(self.cpus, 1)) / NS_PER_S

    def lateness(self, scenario: Scenario) -> float:
        """How late event loops run, as a share of a scenario's round trip."""
        return self.lag_ns / scenario.topology.propagation_rtt_ns

    def fitting_dilation(self, scenario: Scenario) -> int:
        """The smallest dilation at which this machine can be trusted with a scenario.

        There the load is no more than `TARGET_LOAD`, rates being linear in 1/dilation, and event
        loops are late by a small part of a round trip.
        """
        late = self.lateness(scenario) / LAG_P99_DEGRADED_RTT
        most = max(self.load(scenario) / TARGET_LOAD, late)
        exact = scenario.topology.dilation * most
        return max(math.ceil(exact / _DILATION_STEP), 1) * _DILATION_STEP


def show_load(share: float) -> str:
    """A share in words: `94% of`, or `1,005 times` from `_TIMES` on."""
    return f"{show_share(share)} of" if share < _TIMES else f"{share:,.0f} times"


def _further_queue_pairs(scenario: Scenario) -> dict[str, int]:
    """How many queue pairs each host has beyond the first, which is part of a packet's cost.

    Flows of both directions between two hosts share them.
    """
    pairs = dict.fromkeys(
        (src, dst, lane) if src < dst else (dst, src, lane) for src, dst, lane in scenario.flows
    )
    count = Counter(host for first, second, _ in pairs for host in (first, second))
    return {host: queue_pairs - 1 for host, queue_pairs in count.items()}


def judge_load(scenario: Scenario, capacity: Capacity, *, force: bool) -> str | None:
    """Compare a scenario with what the machine carries; returns a warning, or None.

    Raises:
        MachineError: the scenario is far too much, and not forced.
    """
    if not is_too_much(scenario, capacity):
        return None
    load, late = capacity.load(scenario), capacity.lateness(scenario)
    dilation = capacity.fitting_dilation(scenario)
    if load > WARN_LOAD:
        flows = scenario.flow_count
        take = f"{flows} flows take" if flows > 1 else "its only flow takes"
        what = f"{take} about {show_load(load)} this machine's {capacity.cpus:g} CPUs"
        fits = int(flows * TARGET_LOAD / load)
        some = f"{fits} of them would fit, or all with dilation: {dilation}"
        remedy = f"{some if fits else f'dilation: {dilation} would fit'} (auto finds it)"
    else:
        rtt = show_duration(scenario.topology.propagation_rtt_ns)
        what = f"this machine's timers are late by {show_load(late)} a round trip of {rtt}"
        remedy = f"dilation: {dilation} would fit (auto finds it)"
    if (load > REFUSE_LOAD or late > LAG_P99_INVALID_RTT) and not force:
        raise MachineError(what, f"{remedy}; --force runs it anyway")
    return f"{what}: expect a verdict below trusted; {remedy}"


def is_too_much(scenario: Scenario, capacity: Capacity) -> bool:
    """Whether a run is expected to be degraded on a machine that carries this much."""
    return capacity.load(scenario) > WARN_LOAD or capacity.lateness(scenario) > LAG_P99_DEGRADED_RTT


# --- keeping it -------------------------------------------------------------------------------


def load_capacity() -> Capacity | None:
    """The measurement saved for this kernel, CPU, version and build of the core.

    None if there is none, or if it cannot be read.
    """
    for place in _places():
        try:
            return Capacity(**json.loads(place.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
    return None


def save_capacity(capacity: Capacity) -> Path:
    """Save a measurement in the cache of the user, of the caller where sudo runs this.

    If the cache cannot be written, it is saved in the temporary directory.

    Raises:
        OSError: neither can be written.
    """
    places = _places()
    for place in places[:-1]:
        with suppress(OSError):
            return _write(place, capacity)
    if not places:
        raise FileNotFoundError(errno.ENOENT, "no home and no directory for temporary files")
    return _write(places[-1], capacity)


def _write(place: Path, capacity: Capacity) -> Path:
    with acting_for(place):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Another run may read it at the same time: it is there as a whole or not at all.
        return write_file(place, json.dumps(asdict(capacity)))


def _places() -> list[Path]:
    """The files in which a measurement may be saved, the best one first."""
    key = (
        CALIBRATION,
        version(DISTRIBUTION),
        fast.is_built(),
        platform.release(),
        cpu_model(),
        usable_cpus(),
    )
    name = f"capacity-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
    directories = [_user_cache(), _temporary_cache()]
    return [directory / name for directory in directories if directory is not None]


def _user_cache() -> Path | None:
    sudo = caller()
    configured = os.environ.get("XDG_CACHE_HOME", "")
    try:
        if sudo is not None:
            import pwd  # noqa: PLC0415 - not on every system

            cache = Path(pwd.getpwuid(sudo.uid).pw_dir) / ".cache"
        elif Path(configured).is_absolute():
            cache = Path(configured)
        else:
            cache = Path.home() / ".cache"
    except (KeyError, RuntimeError):  # a user who is in no list of users
        return None
    return cache / "mrc-testbed"


def _temporary_cache() -> Path | None:
    """This user's own directory; None where another user has taken its name, or there is none."""
    try:
        temporary = temporary_directory()
    except MachineError:
        return None
    if not hasattr(os, "geteuid"):  # on Windows this directory is the user's alone
        return temporary / "mrc-testbed"
    sudo = caller()
    uid = os.geteuid() if sudo is None else sudo.uid
    directory = temporary / f"mrc-testbed-{uid}"
    try:
        status = directory.lstat()
    except FileNotFoundError:
        return directory
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == uid
    return directory if ours else None
