"""What this machine carries: measured in a short run, kept, and compared with what is asked of it.

The measure is CPU time: of the two endpoints for each data packet, and of the kernel for each link
that a packet crosses. A scenario offers flows x packets/s; their CPU time as a share of all CPUs is
the load to expect.
"""

import hashlib
import json
import math
import os
import platform
import pwd
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from testbed.endpoint.planning import Flow, fair_share_bps, flows_of
from testbed.experiment.machine import ALL_CPUS, cpu_times
from testbed.experiment.manifest import cpu_model
from testbed.experiment.outside import run_experiment
from testbed.model.errors import MachineError
from testbed.model.scenario import Scenario, WriteBw
from testbed.model.topology import Topology
from testbed.model.units import parse_duration
from testbed.results.run_directory import give_to_user

WARN_LOAD = 0.7
"""Expected share of all CPUs above which a run will probably be degraded."""

REFUSE_LOAD = 1.5
"""Above it what is measured would be the machine: refused unless forced."""

CALIBRATION = 1
"""Counts up when what is measured changes its meaning."""

_DURATION_NS = parse_duration("3 s")
_DILATION_STEP = 100
_OBSERVED_S = 0.5
_PAIRS = (("h0", "h4"), ("h1", "h5"), ("h2", "h6"), ("h3", "h7"))
"""A load that fills a small machine: packets cost up to twice as much there as on an idle one."""

_LINKS_ACROSS, _LINKS_WITHIN = 4, 2
"""Links that a packet crosses between racks, and within one."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """CPU time that a data packet costs here, its share of acknowledgements included.

    Attributes:
        endpoint_ns: at the two endpoints together.
        link_ns: on each link.
        cpus: how many there are.
    """

    endpoint_ns: float
    link_ns: float
    cpus: int

    def load(self, scenario: Scenario) -> float:
        """The share of all CPUs that a scenario takes, 1.0 being all of them."""
        topology = scenario.topology
        used = 0.0
        for flow in flows_of(scenario):
            packets_per_s = fair_share_bps(scenario, flow) / (8 * topology.wire_bytes)
            links = _LINKS_ACROSS if _across(topology, flow) else _LINKS_WITHIN
            used += packets_per_s * (self.endpoint_ns + links * self.link_ns)
        return used / (self.cpus * 1e9)


def _across(topology: Topology, flow: Flow) -> bool:
    return topology.rack(flow.src) != topology.rack(flow.dst)


def judge_load(scenario: Scenario, capacity: Capacity, *, force: bool) -> str | None:
    """Compare a scenario with what the machine carries; returns a warning, or None.

    Raises:
        MachineError: it is far too much, and not forced.
    """
    load = capacity.load(scenario)
    if load <= WARN_LOAD:
        return None
    flows = len(scenario.flows)
    fits = max(int(flows * WARN_LOAD / load), 1)
    exact = scenario.topology.dilation * load / WARN_LOAD
    dilation = math.ceil(exact / _DILATION_STEP) * _DILATION_STEP
    what = f"{flows} flows take about {load:.0%} of this machine's {capacity.cpus} CPUs"
    remedy = f"{fits} of them would fit, or all with dilation: {dilation}"
    if load > REFUSE_LOAD and not force:
        raise MachineError(what, f"{remedy}; --force runs it all the same")
    return f"{what}: expect a verdict below trusted; {remedy}"


# --- measuring --------------------------------------------------------------------------------


def calibrate(progress: Callable[[str, float], None]) -> Capacity:
    """Measure it with eight hosts at full rate in both directions; takes about ten seconds.

    Raises:
        MachineError: this machine cannot run the testbed.
    """
    topology = Topology(
        name="calibration", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4
    )
    scenario = Scenario(name="calibration", topology=topology, workload=WriteBw(pairs=_PAIRS))
    scenario = scenario.model_copy(update={"duration": _DURATION_NS})
    with tempfile.TemporaryDirectory(prefix="calibration-") as scratch:
        directory = Path(scratch)
        others = _busy_share(_OBSERVED_S)
        run_experiment(scenario, directory, progress)
        return _capacity_of(directory, others)


def _busy_share(seconds: float) -> float:
    """How busy the machine is with other things."""
    busy, total = cpu_times()[ALL_CPUS]
    time.sleep(seconds)
    busy_after, total_after = cpu_times()[ALL_CPUS]
    return (busy_after - busy) / max(total_after - total, 1)


def _capacity_of(directory: Path, others: float) -> Capacity:
    run = json.loads((directory / "run.json").read_text())
    begin, end = run["t0_ns"], run["t0_ns"] + _DURATION_NS
    samples = [json.loads(line) for line in (directory / "health.jsonl").read_text().splitlines()]
    # The first second is filled with messages that are only being made.
    during = [one for one in samples if begin + 1_000_000_000 < one["t_ns"] <= end]
    machine = [one for one in during if one["process"] == "machine"]
    endpoints = [one for one in during if one["process"] in run["hosts"]]
    cpus = os.cpu_count() or 1
    busy = sum(one["busy_share"] * one["interval_ns"] for one in machine)
    busy_cpus = cpus * max(busy / sum(one["interval_ns"] for one in machine) - others, 0.0)
    hosts = len({one["process"] for one in endpoints})
    endpoint_cpus = (
        hosts * sum(one["cpu_ns"] for one in endpoints) / sum(o["interval_ns"] for o in endpoints)
    )
    packets_per_s = sum(flow["packets_sent"] for flow in run["flows"]) / run["duration_s"]
    endpoint_ns = endpoint_cpus * 1e9 / packets_per_s
    link_ns = max(busy_cpus - endpoint_cpus, 0.0) * 1e9 / packets_per_s / _LINKS_ACROSS
    return Capacity(endpoint_ns, link_ns, cpus)


# --- keeping it -------------------------------------------------------------------------------


def kept() -> Capacity | None:
    """What was measured here before, with this kernel, CPU and version; None if nothing was."""
    try:
        return Capacity(**json.loads(_place().read_text()))
    except FileNotFoundError:
        return None


def keep(capacity: Capacity) -> Path:
    """Keep it in the user's cache: the caller's, where sudo runs this."""
    place = _place()
    new = [one for one in (place.parent, *place.parent.parents) if not one.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(asdict(capacity)))
    for one in (place, *new):
        give_to_user(one)
    return place


def _place() -> Path:
    key = json.dumps(
        [CALIBRATION, version("mrc-testbed"), platform.release(), cpu_model(), os.cpu_count()]
    )
    name = f"capacity-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    return _cache_directory() / "mrc-testbed" / name


def _cache_directory() -> Path:
    caller = os.environ.get("SUDO_UID", "")
    if caller.isdecimal() and os.geteuid() == 0:
        return Path(pwd.getpwuid(int(caller)).pw_dir) / ".cache"
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
