"""What a run was made of: enough to make it again, and to know what it ran on."""

import os
import platform
from dataclasses import asdict
from pathlib import Path

from testbed import fast
from testbed.emulation.experiment.capacity import load_capacity
from testbed.emulation.experiment.machine import cpu_model
from testbed.emulation.fabric.link_model import link_model
from testbed.emulation.fabric.openvswitch.availability import Availability
from testbed.installation import commit
from testbed.model.run_files.layout import MANIFEST
from testbed.model.run_files.manifest import CarriedLoad, Manifest
from testbed.model.scenario import Scenario
from testbed.results.code_version import code_version
from testbed.results.whole_file import write_file

PACKAGES = ("mrc-testbed", "mininet", "ryu", "pyroute2", "matplotlib")


def write_manifest(
    directory: Path,
    scenario: Scenario,
    switch: Availability,
    asleep: str | None,
    realtime_offset_ns: int,
) -> None:
    """Write the manifest of an emulated run.

    Args:
        directory: the run's.
        scenario: as it is run.
        switch: what there is of Open vSwitch.
        asleep: why idle CPUs are not kept awake; None if they are.
        realtime_offset_ns: CLOCK_REALTIME minus CLOCK_MONOTONIC.
    """
    manifest = Manifest.of(
        scenario,
        PACKAGES,
        code=code_version(),
        core="C, built by mypyc" if fast.is_built() else "Python",
        kernel=platform.release(),
        cpu=cpu_model(),
        cpus=os.cpu_count(),
        idle_cpus=_idle_cpus(asleep),
        openvswitch={"datapath": switch.datapath, "reason": switch.reason},
        propagation_delay="held by the endpoints from the kernel's receive timestamp on",
        link_model=_link_model(),
        realtime_offset_ns=realtime_offset_ns,
        capacity=_capacity(scenario),
        git=commit(),
    )
    write_file(directory / MANIFEST, manifest.to_json())


def _capacity(scenario: Scenario) -> CarriedLoad | None:
    """What this machine was measured to carry, and the load to expect; None if it was not."""
    capacity = load_capacity()
    if capacity is None:
        return None
    return CarriedLoad(**asdict(capacity), load=capacity.load(scenario))


def _idle_cpus(asleep: str | None) -> str:
    return "kept awake" if asleep is None else f"sleep, and may wake up late ({asleep})"


def _link_model() -> str:
    missing = link_model.missing()
    if missing is None:
        return "tc-BPF: ECN, trimming, priority, faults; HTB: rate"
    return f"HTB rate and tail drop: no ECN, no trimming, no priority ({missing.what})"
