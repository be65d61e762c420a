"""All that a machine can and cannot do for the testbed, found by trying."""

import os
import re
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator

from testbed.emulation.controller.process import try_ryu
from testbed.emulation.fabric import openvswitch
from testbed.emulation.fabric.capabilities import (
    KernelCapabilities,
    Requirement,
    RequirementResult,
    examine,
)
from testbed.emulation.fabric.interfaces import TUN_REMEDY
from testbed.installation import INSTALL_EMULATION
from testbed.limits import available_memory, usable_cpus
from testbed.model.units import NS_PER_S, show_duration, show_size

LEAST_MEMORY = 1 << 30
"""Available memory, in bytes, below which a default run does not fit (measured: 0.6 GB)."""

ENOUGH_CORES = 2
"""What the default fabric at its default dilation is made for."""

LATE_TIMER_NS = 1_000_000
"""Timers later than this, in the median, shift times by 0.01 of the default base RTT."""

_TIMER_TRIES = 50
_TIMER_NS = 1_000_000

_APT = re.compile(r"apt install ([a-z0-9][a-z0-9+.-]*)")
_APT_INSTALL = "apt-get install -y --no-install-recommends"

_TOOLS = (
    ("iperf3", "apt install iperf3", "ordinary traffic in `testbed shell`"),
    ("ping", "apt install iputils-ping", "ping and pingall in `testbed shell`"),
)
_DATAPATHS = (
    ("system", "Open vSwitch, kernel datapath", "modprobe openvswitch", "many OpenFlow wires"),
    (
        "netdev",
        "Open vSwitch, user-space datapath",
        TUN_REMEDY,  # its bridge is a TAP device
        "faults through OpenFlow where the kernel has no datapath; else without OpenFlow",
    ),
)


def diagnose() -> list[RequirementResult]:
    """Try everything; takes about three seconds."""
    ryu = Requirement(
        "Ryu", f"make setup in a checkout; else {INSTALL_EMULATION}", try_ryu, "every run"
    )
    capabilities = KernelCapabilities()
    return [
        *examine((*capabilities.required(), *capabilities.optional(), ryu)),
        *_open_vswitch(),
        *(_tool(*tool) for tool in _TOOLS),
        _cores(),
        _memory(),
        _clock(),
        _timers(),
    ]


def without_root() -> list[RequirementResult]:
    """What matters to simulations, and needs no root to find out."""
    return [_cores(), _memory(), _clock()]


def _optional(name: str, ok: bool, detail: str, needed_for: str, remedy: str) -> RequirementResult:
    return RequirementResult(name, ok, detail, needed_for, "" if ok else remedy, required=False)


def apt_command(results: Iterable[RequirementResult]) -> str:
    """The command that installs every missing Debian package that a remedy names; empty if none."""
    named = (_APT.search(result.remedy) for result in results)
    packages = sorted({match[1] for match in named if match is not None})
    return " ".join((_APT_INSTALL, *packages)) if packages else ""


def _open_vswitch() -> Iterator[RequirementResult]:
    root = os.geteuid() == 0
    for datapath, name, general, needed_for in _DATAPATHS:
        result = openvswitch.Availability(None, "not tried: it needs root", "run as root")
        if root:
            result = openvswitch.available((datapath,))
        ok = result.datapath == datapath
        detail, remedy = result.reason, result.remedy
        if root and "not installed" not in result.reason:
            detail, remedy = result.remedy, general  # ovs-vswitchd's own words
        yield _optional(name, ok, "" if ok else detail, needed_for, remedy)


def _tool(name: str, remedy: str, needed_for: str) -> RequirementResult:
    place = shutil.which(name)
    return _optional(name, place is not None, place or "not installed", needed_for, remedy)


def _cores() -> RequirementResult:
    cores = usable_cpus()
    remedy = "a topology with a larger dilation, or fewer flows"
    detail = f"{cores:g} of this machine may be used"
    return _optional("cores", cores >= ENOUGH_CORES, detail, "load", remedy)


def _memory() -> RequirementResult:
    available = available_memory()
    remedy = f"free memory until {LEAST_MEMORY >> 30} GiB are available"
    detail = f"{show_size(available)} available"
    return _optional("memory", available >= LEAST_MEMORY, detail, "the default scenarios", remedy)


def _clock() -> RequirementResult:
    resolution_ns = round(time.clock_getres(time.CLOCK_MONOTONIC) * NS_PER_S)
    ok = resolution_ns <= 1000  # noqa: PLR2004 - a microsecond
    detail = f"CLOCK_MONOTONIC counts in steps of {show_duration(resolution_ns)}"
    return _optional("clock", ok, detail, "every timestamp", "a kernel with high-resolution timers")


def _timers() -> RequirementResult:
    late = sorted(timer_overshoot_ns() for _ in range(_TIMER_TRIES))
    middle = statistics.median(late)
    remedy = "end other programs, or use a machine whose host is less busy"
    detail = f"late by {show_duration(middle)} in the median, {show_duration(late[-1])} at worst"
    return _optional("timers", middle <= LATE_TIMER_NS, detail, "pacing, deadlines", remedy)


def timer_overshoot_ns() -> int:
    """By how much a sleep of a millisecond ends late, in ns."""
    planned_ns = time.monotonic_ns() + _TIMER_NS
    time.sleep(_TIMER_NS / NS_PER_S)
    return time.monotonic_ns() - planned_ns
