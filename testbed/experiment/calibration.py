"""Measure what this machine carries, in a run of a few seconds."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.experiment.capacity import Capacity
from testbed.experiment.outside import record_experiment
from testbed.model.fabric.topology import Topology
from testbed.model.flows import LINKS_ACROSS, fair_shares_bps
from testbed.model.scenario import Scenario
from testbed.model.units import parse_duration
from testbed.model.workload import WriteBw

_DURATION_NS = parse_duration("3.2 s")
_WARM_NS = parse_duration("0.6 s")
"""At first messages are being made."""

_DILATION = 30_000
_PAIRS = (("h0", "h4"), ("h1", "h5"), ("h2", "h6"), ("h3", "h7"))
"""About half of what a small machine carries: a packet costs up to twice as much there as on an
idle one, and less again where endpoints are late and take many at once. With as many hosts as most
scenarios have: with four of them it costs a fifth less."""


def calibrate(progress: Callable[[str, float], None]) -> Capacity:
    """Measure it with eight hosts at full rate in both directions.

    Raises:
        MachineError: this machine cannot run the testbed.
        RunFailedError: it was so busy that the run broke off.
    """
    topology = Topology(
        name="calibration",
        planes=4,
        t0_per_plane=2,
        t1_per_plane=4,
        hosts_per_t0=4,
        dilation=_DILATION,
    )
    scenario = Scenario(name="calibration", topology=topology, workload=WriteBw(pairs=_PAIRS))
    scenario = scenario.model_copy(update={"duration": _DURATION_NS})
    with tempfile.TemporaryDirectory(prefix="calibration-") as scratch:
        directory = Path(scratch)
        record_experiment(scenario, directory, progress)
        return _capacity_of(scenario, directory)


def _capacity_of(scenario: Scenario, directory: Path) -> Capacity:
    """What the records say: endpoints by their own CPU time, links by the kernel's softirqs.

    So other programs that the machine runs meanwhile are not counted, unless they use the network;
    nor do they make the lag of the least disturbed endpoint.
    """
    run = json.loads((directory / "run.json").read_text())
    begin, end = run["t0_ns"] + _WARM_NS, run["t0_ns"] + _DURATION_NS
    samples = [json.loads(line) for line in (directory / "health.jsonl").read_text().splitlines()]
    during = [one for one in samples if begin <= one["t_ns"] - one["interval_ns"]]
    during = [one for one in during if one["t_ns"] <= end]
    machine = [one for one in during if one["process"] == "machine"]
    endpoints = [one for one in during if one["process"] in run["hosts"]]
    all_cpus = os.cpu_count() or 1  # of which softirq_share is
    hosts = len({one["process"] for one in endpoints})
    endpoint_cpus = hosts * _per_time(endpoints, "cpu_ns")
    for one in machine:
        one["softirq_ns"] = one["softirq_share"] * one["interval_ns"]
    link_cpus = all_cpus * _per_time(machine, "softirq_ns")
    packets_per_s = sum(fair_shares_bps(scenario).values()) / (8 * scenario.topology.wire_bytes)
    return Capacity(
        endpoint_ns=endpoint_cpus * 1e9 / packets_per_s,
        link_ns=link_cpus * 1e9 / packets_per_s / LINKS_ACROSS,
        cpus=len(os.sched_getaffinity(0)),
        lag_ns=min(one["lag_p99_ns"] for one in endpoints),
    )


def _per_time(samples: list[dict[str, Any]], key: str) -> float:
    return float(sum(one[key] for one in samples) / sum(one["interval_ns"] for one in samples))
