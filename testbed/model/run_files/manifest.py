"""The content of `manifest.json`: what a run was made of."""

import json
import platform
from importlib.metadata import version
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from testbed.model.scenario import Scenario


class CarriedLoad(BaseModel):
    """What a machine was measured to carry, and the load that a run was expected to be.

    Attributes:
        endpoint_ns: CPU time of a data packet at both endpoints together.
        link_ns: CPU time of a data packet on each link.
        cpus: how many CPUs' time may be used.
        lag_ns: how late event loops woke during the measurement, 99th percentile, in ns.
        load: the expected share of the CPUs, 1.0 being all of them.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    endpoint_ns: float
    cpus: float
    link_ns: float = 0.0
    lag_ns: float = 0.0
    load: float = 0.0


class Manifest(BaseModel):
    """`manifest.json`: enough to make a run again, and to know what it ran on.

    Attributes:
        simulated: whether the fabric was simulated: no packet crossed a kernel.
        paced: whether its time kept step with the clock, because programs sent on it.
        scenario: the resolved scenario, its topology included, as JSON.
        seed: the scenario's.
        code: version of the code that decides the results of a run.
        packages: versions of the packages that it used.
        python: the interpreter's version.
        core: whether the protocol core was Python or built as C.
        kernel: its release.
        host: the name of the machine.
        machine: its architecture.
        cpu: its model.
        cpus: their number.
        idle_cpus: whether idle CPUs were kept awake.
        openvswitch: its datapath, or the reason that there is none.
        propagation_delay: where packets are delayed.
        link_model: what links do beside forwarding.
        realtime_offset_ns: CLOCK_REALTIME, the clock of pcap files, minus CLOCK_MONOTONIC, that of
            all records, as the run began; in ns. A packet's time in a pcap file, minus this and
            minus `t0_ns` of `run.json`, is the `t` of tables.
        capacity: what the machine was measured to carry, and the load to expect.
        git: commit of the checkout, and whether the tree differs from it.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="allow")

    simulated: bool = False
    paced: bool = False
    scenario: Any = None
    seed: int = 1
    code: str | None = None
    packages: dict[str, str] = {}
    python: str = ""
    core: str = ""
    kernel: str = ""
    host: str = ""
    machine: str = ""
    cpu: str = ""
    cpus: int | None = None
    idle_cpus: str = ""
    openvswitch: dict[str, str | None] = {}
    propagation_delay: str = ""
    link_model: str = ""
    realtime_offset_ns: int | None = None
    capacity: CarriedLoad | None = None
    git: dict[str, str | bool] | None = None

    @classmethod
    def of(cls, scenario: Scenario, packages: tuple[str, ...], **facts: Any) -> Self:
        """The manifest of a scenario on this machine, with what differs between kinds of runs."""
        return cls(
            scenario=scenario.model_dump(mode="json", by_alias=True),
            seed=scenario.seed,
            packages={package: version(package) for package in packages},
            python=platform.python_version(),
            host=platform.node(),
            machine=platform.machine(),
            **facts,
        )

    def as_record(self) -> dict[str, Any]:
        """What was given, as the values of a JSON object."""
        return self.model_dump(mode="json", exclude_unset=True)

    def to_json(self) -> str:
        return json.dumps(self.as_record(), indent=1)
