"""What a machine carries is found however slow it is; or it is said what to do without that."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import limits
from testbed.emulation.experiment import calibration
from testbed.emulation.experiment.calibration import DILATIONS, calibrate, capacity_of, scenario_at
from testbed.emulation.experiment.experiment import Experiment
from testbed.emulation.experiment.machine import WARN_LOAD, Capacity
from testbed.model.errors import ExitStatus, MachineError, RunFailedError
from testbed.model.run_files.layout import HEALTH, RUN
from testbed.model.scenario import Scenario
from testbed.runs.process import LocalExecutor
from tests.commands import TESTBED, completed
from tests.machine import control_group

RECORDED = Path(__file__).parent / "recorded"
"""Of one machine, with two CPUs and held to a quarter of one, at the dilation of the name."""

ENDPOINT_NS = 160_000
"""What a packet costs its endpoints there."""

Record = Callable[[Experiment, object], None]


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Have this machine so many CPUs to use, of two."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return lambda count: monkeypatch.setattr(calibration, "usable_cpus", lambda: count)


def _found(name: str) -> tuple[Scenario, Capacity]:
    scenario = scenario_at(int(name.rsplit("-", maxsplit=1)[-1]))
    found = capacity_of(scenario, RECORDED / name)
    assert found is not None
    return scenario, found


def test_a_machine_that_carries_the_measurement_is_measured_at_once(
    cpus: Callable[[float], None],
) -> None:
    cpus(2)
    scenario, found = _found("two-cpus-30000")
    assert found.endpoint_ns == pytest.approx(ENDPOINT_NS, rel=0.1)
    assert found.load(scenario) < WARN_LOAD


def test_a_machine_that_does_not_is_not_believed(cpus: Callable[[float], None]) -> None:
    """It carried half of the packets, and each seems to cost half."""
    cpus(0.25)
    scenario, found = _found("quarter-cpu-30000")
    assert found.endpoint_ns < 0.6 * ENDPOINT_NS
    assert found.load(scenario) > WARN_LOAD
    scenario, found = _found("quarter-cpu-120000")
    assert found.endpoint_ns == pytest.approx(ENDPOINT_NS, rel=0.1)


def test_samples_from_outside_the_measurement_are_no_measurement(
    tmp_path: Path, cpus: Callable[[float], None]
) -> None:
    """As on a machine so slow that a sample of a second takes several."""
    cpus(2)
    shutil.copy(RECORDED / "two-cpus-30000" / RUN, tmp_path)
    lines = (RECORDED / "two-cpus-30000" / HEALTH).read_text().splitlines()
    late = [json.loads(line) | {"interval_ns": 4 * 10**9} for line in lines]
    (tmp_path / HEALTH).write_text("".join(json.dumps(line) + "\n" for line in late))
    assert capacity_of(scenario_at(DILATIONS[0]), tmp_path) is None


def _machine(endpoint_ns: int) -> Record:
    """The record of a machine of one CPU on which a packet costs its ends so much."""

    def record(experiment: Experiment, _: object) -> None:
        scenario = experiment.scenario
        hosts: dict[str, dict[str, int]] = {f"h{i}": {} for i in range(8)}
        wanted = Capacity(endpoint_ns, 0, 1).load(scenario)
        cpu_ns = round(min(wanted, 1.0) * 1e9 / len(hosts))
        run = {"t0_ns": 0, "duration_s": 1.0, "base_rtt_ns": 1, "flows": [], "hosts": hosts}
        (experiment.directory / RUN).write_text(json.dumps(run))
        second = {"interval_ns": 10**9}
        lines = [
            {"process": host, "cpu_ns": cpu_ns, "lag_p99_ns": 0, "t_ns": t * 10**9, **second}
            for t in range(1, scenario.duration // 10**9 + 1)
            for host in hosts
        ]
        machine = {"process": "machine", "softirq_share": 0.0, "t_ns": 2 * 10**9, **second}
        lines.append(machine | {"t_ns": scenario.duration, "interval_ns": 10**6})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (experiment.directory / HEALTH).write_text(text)

    return record


@pytest.mark.parametrize("endpoint_ns", [1_000, 100_000, 500_000, 2_000_000])
def test_fast_and_slow_machines_are_measured_alike(
    endpoint_ns: int, monkeypatch: pytest.MonkeyPatch, cpus: Callable[[float], None]
) -> None:
    """Ten times faster than usual to fifteen times slower, and whatever was measured before."""
    cpus(1)
    monkeypatch.setattr(calibration, "record_experiment", _machine(endpoint_ns))
    assert calibrate(lambda *_: None).endpoint_ns == pytest.approx(endpoint_ns, rel=0.01)


def test_a_run_that_breaks_off_is_made_again_slower(
    monkeypatch: pytest.MonkeyPatch, cpus: Callable[[float], None]
) -> None:
    cpus(1)
    works, dilations = _machine(100_000), []

    def record(experiment: Experiment, progress: object) -> None:
        dilations.append(experiment.scenario.topology.dilation)
        if len(dilations) == 1:
            raise RunFailedError("an endpoint did not answer")
        works(experiment, progress)

    monkeypatch.setattr(calibration, "record_experiment", record)
    assert calibrate(lambda *_: None).endpoint_ns == pytest.approx(100_000, rel=0.01)
    assert dilations == [*DILATIONS[:2]]


def test_a_machine_that_cannot_be_measured_is_told_the_dilation_to_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def record(_experiment: Experiment, _progress: object) -> None:
        raise RunFailedError("an endpoint did not answer")

    monkeypatch.setattr(calibration, "record_experiment", record)
    with pytest.raises(MachineError, match="too slow or too busy") as refused:
        calibrate(lambda *_: None)
    assert "--force --set topology.dilation=1920000" in refused.value.remedy
    assert "an endpoint did not answer" in refused.value.what


# --- limits of control groups ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/job", {"job/cpu.max": "25000 100000", "cpu.max": "max 100000"}, 0.25),
        ("0::/job", {"job/cpu.max": "max 100000"}, float("inf")),
        (
            "1:cpu:/job",
            {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_quota_us": "-1"},
            float("inf"),
        ),
        (
            "3:cpu,cpuacct:/\n0::/",
            {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        ("0::/", {}, float("inf")),
    ],
)
def test_the_cpu_time_that_groups_grant(
    membership: str,
    files: dict[str, str],
    expected: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "membership").write_text(membership + "\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(limits, "ROOT", tmp_path)
    monkeypatch.setattr(limits, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(limits, "MOUNTS", tmp_path / "none")
    assert limits.cpus() == expected


@pytest.mark.parametrize("membership", ["/pod/container/job", "/job", "/pod/container"])
def test_a_container_sees_its_own_groups_at_the_top(
    membership: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the whole path of its group, or, in a namespace of its own, with that from its own."""
    (tmp_path / "membership").write_text(f"1:cpu:{membership}\n")
    (tmp_path / "mounts").write_text(
        f"419 418 0:29 /pod/container {tmp_path}/cpu rw,nosuid - cgroup cgroup rw,cpu\n"
    )
    (tmp_path / "cpu/job").mkdir(parents=True)
    for group, quota in (("cpu", "50000"), ("cpu/job", "25000")):
        (tmp_path / group / "cpu.cfs_quota_us").write_text(quota)
        (tmp_path / group / "cpu.cfs_period_us").write_text("100000")
    monkeypatch.setattr(limits, "ROOT", tmp_path)
    monkeypatch.setattr(limits, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(limits, "MOUNTS", tmp_path / "mounts")
    assert limits.cpus() == (0.25 if membership.endswith("job") else 0.5)


@pytest.fixture
def quarter() -> Iterator[Path]:
    """A control group whose processes get a quarter of a CPU together."""
    with control_group("cpu", {"cpu.max": "25000 100000", "cpu.cfs_quota_us": "25000"}) as group:
        yield group


@pytest.mark.root
@pytest.mark.long
def test_a_quarter_of_a_cpu_is_measured(quarter: Path, tmp_path: Path) -> None:
    """And what it carries is found for `dilation: auto`.

    Beside other tests it still has its quarter, and it takes minutes.
    """
    enter = f"echo $$ > {quarter}/cgroup.procs; exec {TESTBED} doctor --measure --json"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = completed(["sh", "-c", enter], env=environment)
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    found = Capacity(**json.loads(done.stdout)["capacity"])
    assert found.cpus == pytest.approx(0.25)
    assert found.load(scenario_at(found.fitting_dilation(scenario_at(DILATIONS[0])))) <= WARN_LOAD


@pytest.mark.parametrize(
    ("affinity", "quota", "gigabytes", "simulations"),
    [
        (64, "max 100000", 100, 64),
        (1, "max 100000", 100, 1),
        (64, "250000 100000", 100, 2),
        (64, "50000 100000", 100, 1),
        (64, "max 100000", 4, 8),
        (64, "max 100000", 0, 1),
    ],
)
def test_simulations_side_by_side_are_as_many_as_this_process_may_have(
    affinity: int,
    quota: str,
    gigabytes: int,
    simulations: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not as many as the machine has CPUs: in a container with one of 64 there were 64."""
    (tmp_path / "membership").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text(quota)
    for file, size in (("max", gigabytes << 30), ("current", 0)):
        (tmp_path / f"memory.{file}").write_text(str(size))
    (tmp_path / "meminfo").write_text(f"MemAvailable: {200 << 20} kB\n")
    monkeypatch.setattr(limits, "ROOT", tmp_path)
    monkeypatch.setattr(limits, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(limits, "MOUNTS", tmp_path / "none")
    monkeypatch.setattr(limits, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(affinity))
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert limits.simulations_at_once() == simulations
    assert LocalExecutor(tmp_path).slots("simulated") == simulations
