"""Whether this machine has, or had, the room that a run takes: memory, processes, disk."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from testbed import limits
from testbed.limits import available_memory
from testbed.model.checks import buffer_bytes
from testbed.model.errors import MachineError
from testbed.model.fabric.topology import Topology
from testbed.model.limits import evs_of_all_flows
from testbed.model.run_files.layout import LOGS
from testbed.model.scenario import Scenario
from testbed.model.units import show_size

NODE_BYTES = 200_000
LINK_BYTES = 190_000
"""Kernel memory of a namespace, and of a link with its queues, routes and programs (measured from
32 nodes with 64 links to 160 with 768, on two CPUs: what Slab, Percpu, KernelStack and VmallocUsed
grew by)."""

ENDPOINT_BYTES = 24 << 20
"""Memory of an endpoint (measured in the permutation: 22 MB, messages and all), rounded up."""

FLOW_BYTES = 25_000
EV_BYTES = 600
"""Memory of a simulated flow, both ends, and of each of its EVs (measured with 128 to 4,032 flows
of 16 to 256 EVs)."""

ANALYSED_LINK_BYTES = 2_000
"""Memory of a link in the analysis of a simulated run, which lists all of the fabric."""

OTHER_PROCESSES = 32
"""Of a run beside its endpoints, threads included: sandbox, controller, Open vSwitch."""

_SHRINKABLE = ("hosts_per_t0", "t1_per_plane", "planes", "t0_per_plane")


def fabric_bytes(topology: Topology) -> int:
    """Kernel memory that a fabric takes."""
    hosts = topology.host_count
    switches = topology.planes * (topology.t0_per_plane + topology.t1_per_plane)
    return (hosts + switches) * NODE_BYTES + topology.link_count * LINK_BYTES


def require_room_for_fabric(topology: Topology, beside: int = 0) -> None:
    """Check that a fabric fits this machine's memory, with `beside` bytes for other things.

    Raises:
        MachineError: it does not; says what would.
    """
    needed, available = fabric_bytes(topology), int(available_memory()) - beside
    if needed <= available:
        return
    fitting = " or ".join(_fitting(topology, available)) or "no fabric of this shape"
    raise MachineError(
        f"the fabric {topology.name} takes {show_size(needed)} of kernel memory, "
        f"{show_size(max(available, 0))} are left for it",
        f"{fitting} would fit",
    )


def _fitting(topology: Topology, available: int) -> Iterator[str]:
    """For each number of the fabric, the largest that fits with the others as they are."""
    for key in _SHRINKABLE:
        for smaller in range(getattr(topology, key) - 1, 0, -1):
            if fabric_bytes(topology.model_copy(update={key: smaller})) <= available:
                yield f"{key}: {smaller}"
                break


def require_room(scenario: Scenario) -> None:
    """Check that a run fits this machine's memory and number of processes.

    Raises:
        MachineError: it does not; says what would.
    """
    endpoints = len({host for src, dst, _ in scenario.flows for host in (src, dst)})
    spare = available_processes() - OTHER_PROCESSES
    if endpoints > spare:
        raise MachineError(
            f"{endpoints} hosts that send or receive need a process each, {spare} more may run",
            f"{max(spare, 0)} such hosts would fit, or a higher limit (pids.max of the cgroup, "
            "kernel.threads-max, kernel.pid_max)",
        )
    messages, available = buffer_bytes(scenario), int(available_memory())
    in_endpoints = endpoints * ENDPOINT_BYTES + messages
    if in_endpoints > available:
        fits = int(scenario.flow_count * available / in_endpoints)
        raise MachineError(
            f"the endpoints of this scenario take {show_size(in_endpoints)} of memory, "
            f"{show_size(messages)} of it for messages, {show_size(available)} are available",
            f"about {fits} of its {scenario.flow_count} flows would fit, or a smaller message_size "
            "or depth",
        )
    require_room_for_fabric(scenario.topology, in_endpoints)


def require_room_to_simulate(scenario: Scenario) -> None:
    """Check that the queue pairs and messages of a simulation fit this machine's memory.

    Raises:
        MachineError: they do not.
    """
    messages, available = buffer_bytes(scenario), available_memory()
    flows = scenario.flow_count * FLOW_BYTES + evs_of_all_flows(scenario) * EV_BYTES
    fabric = scenario.topology.link_count * ANALYSED_LINK_BYTES
    if messages + flows + fabric > available:
        raise MachineError(
            f"the {scenario.flow_count:,} flows of this scenario take {show_size(flows)} of memory"
            f", their messages {show_size(messages)} and the fabric {show_size(fabric)}; "
            f"{show_size(available)} are available",
            "fewer flows, transport.evs, a smaller message_size, depth or fabric, or more memory",
        )


# --- what there is --------------------------------------------------------------------------------


def available_processes() -> int:
    """How many more processes and threads may run, by all limits that hold here."""
    running = int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[2])
    kernel = (Path("/proc/sys/kernel", name) for name in ("pid_max", "threads-max"))
    left = [int(path.read_text(encoding="ascii")) - running for path in kernel]
    return int(min(*left, limits.processes()))


_LEAST_FREE_BYTES = 1 << 16
"""A file system with less than this free is full: the largest single write of a run is larger."""

_LOG_CHARACTERS = 2000

_NO_SPACE = errno.ENOSPC, errno.EDQUOT


def shortage(
    error: BaseException, directory: Path, elsewhere: str = "--results DIR"
) -> MachineError | None:
    """The shortage that made a run in this directory fail with this error; None if there is none.

    Errors of processes arrive as text, or are in their logs; both have the system's text for the
    error number.

    Args:
        error: the error.
        directory: where the run is written.
        elsewhere: how it is written elsewhere.
    """
    text = "\n".join((f"{type(error).__name__}: {error}", *_ends_of_logs(directory)))
    if is_full(directory) or _names(text, *_NO_SPACE):
        return MachineError(
            f"no space is left on the file system of {directory}",
            f"free some, or write elsewhere: {elsewhere}",
        )
    if _names(text, errno.EROFS):
        return MachineError(
            f"the file system of {directory} has become read-only", f"write elsewhere: {elsewhere}"
        )
    if _names(text, errno.EFBIG):
        return MachineError(
            f"a file of {directory} would be larger than files may be here",
            "raise that limit: ulimit -f unlimited",
        )
    if _names(text, errno.EMFILE, errno.ENFILE):
        return MachineError(
            "the limit of open files is too low for this fabric",
            "raise it: ulimit -n 65536; for a container --ulimit nofile=65536:65536",
        )
    if isinstance(error, MemoryError) or "MemoryError" in text or _names(text, errno.ENOMEM):
        return MachineError(
            "memory ran out", "a scenario with fewer flows or smaller messages, or a higher limit"
        )
    return None


def _ends_of_logs(directory: Path) -> Iterator[str]:
    """The last lines that each process of the run has logged."""
    for log in (directory / LOGS).glob("*.log"):
        yield log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:]


def _names(text: str, *numbers: int) -> bool:
    return any(os.strerror(number) in text for number in numbers)


def is_full(directory: Path) -> bool:
    try:
        system = os.statvfs(directory)
    except OSError:
        return False
    out_of_files = system.f_files > 0 and system.f_favail == 0
    return out_of_files or system.f_bavail * system.f_frsize < _LEAST_FREE_BYTES
