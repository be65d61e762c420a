"""Measure what this machine carries, in a run of a few seconds."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from testbed.emulation.experiment.experiment import Experiment
from testbed.emulation.experiment.machine import WARN_LOAD, Capacity
from testbed.emulation.experiment.outside import record_experiment
from testbed.limits import usable_cpus
from testbed.model.errors import CrashError, MachineError, RunFailedError
from testbed.model.fabric.topology import Topology
from testbed.model.flows import LINKS_ACROSS, fair_shares_bps
from testbed.model.run_files.content import HealthSample, RunRecord
from testbed.model.run_files.layout import HEALTH, RUN
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S, parse_duration
from testbed.model.workload import WriteBw
from testbed.results.analysis.lateness import LAG_P99_INVALID_RTT
from testbed.results.whole_file import scratch

_DURATION_NS = parse_duration("3.2 s")
_WARM_NS = parse_duration("0.6 s")
"""Left out at the beginning, while the messages are made."""

DILATIONS = (30_000, 120_000, 480_000)
"""A machine that is too slow for one dilation is measured at the next: it carries fewer packets
there than it is offered, so what is measured of them is too little."""

_PAIRS = (("h0", "h4"), ("h1", "h5"), ("h2", "h6"), ("h3", "h7"))
"""About half of what a small machine carries. At that load a packet costs up to twice as much CPU
time as on an idle machine; at more load it costs less, as late endpoints handle many at once. Eight
hosts, as in most scenarios: with four of them a packet costs a fifth less."""


def calibrate(progress: Callable[[str, float], None]) -> Capacity:
    """Measure the capacity of this machine, with eight hosts at full rate in both directions.

    Raises:
        MachineError: this machine cannot run the testbed, or not even the slowest measurement.
    """
    capacity, obstacle = None, "no process reported its load in time"
    for dilation in DILATIONS:
        scenario = scenario_at(dilation)
        with scratch("testbed-calibration-") as directory:
            try:
                record_experiment(Experiment(scenario, directory), progress)
            except CrashError:
                raise
            except RunFailedError as error:
                obstacle = str(error)
                continue
            measured = capacity_of(scenario, directory)
        if measured is not None:
            capacity = measured
            if (
                measured.load(scenario) <= WARN_LOAD
                and measured.lateness(scenario) <= LAG_P99_INVALID_RTT
            ):
                break
    if capacity is None:
        unmeasured = DILATIONS[-1] * DILATIONS[-1] // DILATIONS[-2]
        raise MachineError(
            "this machine is too slow or too busy to be measured, even at a dilation of "
            f"{DILATIONS[-1]}: {obstacle}",
            "end other programs, or run without measuring: "
            f"--force --set topology.dilation={unmeasured}",
        )
    return capacity


def scenario_at(dilation: float) -> Scenario:
    topology = Topology(
        name="calibration",
        planes=4,
        t0_per_plane=2,
        t1_per_plane=4,
        hosts_per_t0=4,
        dilation=dilation,
    )
    scenario = Scenario(name="calibration", topology=topology, workload=WriteBw(pairs=_PAIRS))
    return scenario.model_copy(update={"duration": _stretched(_DURATION_NS, dilation)})


def _stretched(time_ns: int, dilation: float) -> int:
    """A time of the measurement at the first dilation, at another."""
    return round(time_ns * dilation / DILATIONS[0])


def capacity_of(scenario: Scenario, directory: Path) -> Capacity | None:
    """The capacity, from the CPU time of endpoints, and of the kernel's softirqs for links.

    So other programs are not counted, unless they use the network. The lag is that of the endpoint
    that they disturbed least. None if there is no sample of an endpoint or of the machine from
    within the measurement.
    """
    run = RunRecord.model_validate_json((directory / RUN).read_text(encoding="utf-8"))
    warm_ns = _stretched(_WARM_NS, scenario.topology.dilation)
    begin, end = run.t0_ns + warm_ns, run.t0_ns + scenario.duration
    lines = (directory / HEALTH).read_text(encoding="utf-8").splitlines()
    samples = [HealthSample.model_validate_json(line) for line in lines]
    during = [s for s in samples if begin <= s.t_ns - s.interval_ns and s.t_ns <= end]
    endpoints = [sample for sample in during if sample.process in run.hosts]
    machine = [sample for sample in during if sample.softirq_share is not None]
    if not machine or not endpoints:
        return None
    all_cpus = os.cpu_count() or 1  # of which softirq_share is
    hosts = len({sample.process for sample in endpoints})
    endpoint_cpus = hosts * _share((s.cpu_ns or 0, s.interval_ns) for s in endpoints)
    link_cpus = all_cpus * _share(
        ((s.softirq_share or 0.0) * s.interval_ns, s.interval_ns) for s in machine
    )
    packets_per_s = sum(fair_shares_bps(scenario).values()) / (8 * scenario.topology.wire_bytes)
    return Capacity(
        endpoint_ns=endpoint_cpus * NS_PER_S / packets_per_s,
        link_ns=link_cpus * NS_PER_S / packets_per_s / LINKS_ACROSS,
        cpus=usable_cpus(),
        lag_ns=min(sample.lag_p99_ns or 0 for sample in endpoints),
    )


def _share(spent: Iterable[tuple[float, int]]) -> float:
    """Time that was spent over the time that passed, both in ns, of several intervals."""
    busy_ns, passed_ns = map(sum, zip(*spent, strict=True))
    return busy_ns / passed_ns
