"""Whether the simulator says what the emulation measures: the same scenarios in both.

Goodput is that of the steady window, against what an even split allows, mean over the flows;
recovery is that of the median flow of those with a path through the fault, in round trips: the
worst of eight is chance. The simulator keeps the emulation's timing: compared are the
transport and the queues, not where on its way a packet is delayed. Both run at the dilation that
this machine carries at the moment, as many round trips long. A table is left beside the pictures.

Programs run on the emulated fabric, and without root on the simulated one (`testbed device`):
perftest's bandwidth while a link is silent, and its latency.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from testbed.emulation.experiment.calibration import calibrate
from testbed.model.faults.kinds import Blackhole, Cut, Fault, Loss
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.model.summary.unit import NEVER, RTT
from testbed.model.transport import Mrc
from testbed.model.units import show_share
from testbed.model.workload import WriteBw
from testbed.results.run_directory import making_run
from testbed.studies.bench.device import AGREES, LEAST_RTT, seen
from testbed.studies.bench.measure import Measurement, Setting, at_least, at_most
from testbed.studies.bench.runs import at_fitting_dilation, make_runs

DURATION = "5 s"
TIMES = {"at": "2 s", "for": "1.5 s"}
TABLE = "agreement.md"

_PAIR = (("h0", "h4"),)
_ALL = (("h0", "h4"), ("h1", "h5"), ("h2", "h6"), ("h3", "h7"))


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of a run: goodput over what an even split allows, recovery, its verdict.

    Recovery is None where there is none to measure, as without a fault; it may be NEVER.
    """

    goodput: float
    recovery_rtt: float | None
    verdict: str

    @classmethod
    def of(cls, summary: Summary) -> "RunFigures":
        flows = [flow for fault in summary.faults for flow in fault.flows if flow.affected]
        recoveries = [flow.recovery.rtt for flow in flows if flow.recovery is not None]
        recovery = median(recoveries) if recoveries else None
        goodput = mean(flow.before_fraction or 0.0 for flow in summary.flows)
        return cls(goodput, recovery, summary.verdict)


@dataclass(frozen=True, slots=True)
class Compared:
    """A scenario in both, at a dilation; `tries` is how often it was emulated."""

    name: str
    dilation: float
    emulated: RunFigures
    simulated: RunFigures
    tries: int

    @property
    def judged(self) -> bool:
        """Whether the emulated run counts: an invalid one does not."""
        return self.emulated.verdict != "invalid"

    @property
    def goodput_off(self) -> float:
        return abs(self.simulated.goodput / self.emulated.goodput - 1)

    @property
    def recovery_off(self) -> float | None:
        """The relative difference of recovery; None where there is none; 1 if one is NEVER."""
        emulated, simulated = self.emulated.recovery_rtt, self.simulated.recovery_rtt
        if emulated is None or simulated is None:
            return None
        if NEVER in (emulated, simulated):
            return 0.0 if emulated == simulated else 1.0
        return abs(simulated - emulated) / max(simulated, emulated, LEAST_RTT)


def scenarios() -> Iterator[Scenario]:
    """Ten: link failures of several kinds and places, full fabrics, an incast."""
    hole = Blackhole(target="p0_t0_0--p0_t1_1", **TIMES)
    yield _scenario("blackhole", "clos-4plane", _PAIR, hole)
    yield _scenario("blackhole-2", "clos-4plane", _PAIR, hole, seed=2)
    yield _scenario("blackhole-8plane", "clos-8plane", (("h0", "h2"),), hole)
    yield _scenario("blackhole-nic", "clos-4plane", _PAIR, Blackhole(target="h4--p1_t0_1", **TIMES))
    yield _scenario("cut", "clos-4plane", _PAIR, Cut(target="p2_t0_1--p2_t1_0", **TIMES))
    yield _scenario(
        "loss", "clos-4plane", _PAIR, Loss(target="p1_t0_0--p1_t1_2", probability=0.2, **TIMES)
    )
    yield _scenario("permutation", "clos-4plane", _ALL)
    yield _scenario("permutation-blackhole", "clos-4plane", _ALL, hole)
    incast = tuple((f"h{i}", "h7") for i in range(7))
    yield _scenario("incast", "clos-4plane", incast, bidirectional=False)
    yield _scenario("local", "clos-4plane", (("h0", "h1"),))


def _scenario(
    name: str,
    topology: str,
    pairs: tuple[tuple[str, str], ...],
    *faults: Fault,
    seed: int = 1,
    bidirectional: bool = True,
) -> Scenario:
    return Scenario(
        name=f"agreement-{name}",
        topology=load_topology(topology),
        seed=seed,
        duration=DURATION,
        workload=WriteBw(pairs=pairs, bidirectional=bidirectional),
        transport=Mrc(congestion="nscc"),
        timeline=faults,
    )


def agreement(setting: Setting) -> list[Measurement]:
    """Run every scenario in both, the emulation again where a run cannot be trusted.

    An invalid run gives no sample: the table shows it, and the first figure counts it.
    """
    rounds = setting.repeat("agreement", lambda: _compare(setting))
    by_scenario = list(zip(*rounds, strict=True))
    of_programs, table_of_programs = seen(setting)
    (setting.pictures / TABLE).write_text(
        f"{table([run for runs in by_scenario for run in runs])}\n{table_of_programs}",
        encoding="utf-8",
    )
    judged = [sum(run.judged for run in runs) for runs in rounds]
    return [
        at_least("emulated runs that are not invalid", "", judged, len(by_scenario)),
        *(figure for runs in by_scenario for figure in _differences(runs)),
        *of_programs,
    ]


def _differences(runs: Sequence[Compared]) -> Iterator[Measurement]:
    """By how much the two differ in one scenario, a sample for each round."""
    judged = [run for run in runs if run.judged]
    if not judged:
        return
    name = judged[0].name
    yield at_most(f"goodput off, {name}", "", [run.goodput_off for run in judged], AGREES)
    recovery = [run.recovery_off for run in judged if run.recovery_off is not None]
    if recovery:
        yield at_most(f"recovery off, {name}", "", recovery, AGREES)


def _compare(setting: Setting) -> list[Compared]:
    """Run every scenario in both, at the dilation that this machine carries now."""
    setting.progress("what this machine carries")
    capacity = calibrate(lambda _what, _done: None)
    fitting = [at_fitting_dilation(scenario, capacity) for scenario in scenarios()]
    compared = []
    for scenario, emulated in zip(fitting, make_runs(fitting, setting), strict=True):
        setting.progress(f"{scenario.name}, simulated")
        compared.append(
            Compared(
                scenario.name.removeprefix("agreement-"),
                scenario.topology.dilation,
                RunFigures.of(emulated.summary),
                RunFigures.of(_simulate(scenario, setting.results)),
                emulated.attempts,
            )
        )
    return compared


def _simulate(scenario: Scenario, results: Path) -> Summary:
    """Simulate with the emulation's timing: a scenario has none, so the campaign engine cannot."""
    # They load Polars, which starts threads: not before `calibrate` has forked a sandbox.
    from testbed.results.analyse import analyse  # noqa: PLC0415
    from testbed.sim import Timing, simulate  # noqa: PLC0415

    with making_run(results, f"simulated-{scenario.name}", scenario.seed) as run:
        simulate(scenario, run.path, timing=Timing.EMULATED)
        return analyse(run.path)


def table(compared: Sequence[Compared]) -> str:
    """As a table in Markdown: each figure emulated, simulated, and by how much they differ."""
    heads = "goodput / attainable, emulated", "simulated", "off", "recovery (RTT), emulated"
    rows = [
        f"| scenario | dilation | {' | '.join(heads)} | simulated | off | emulated run |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for run in compared:
        emulated, simulated = run.emulated, run.simulated
        rows.append(
            f"| {run.name} | {run.dilation:g} "
            f"| {emulated.goodput:.3f} | {simulated.goodput:.3f} | {show_share(run.goodput_off)} "
            f"| {_rtts(emulated.recovery_rtt)} | {_rtts(simulated.recovery_rtt)} "
            f"| {_percent(run.recovery_off)} | {emulated.verdict}{_tries(run.tries)} |"
        )
    return "\n".join(rows) + "\n"


def _rtts(recovery_rtt: float | None) -> str:
    return "" if recovery_rtt is None else RTT.number(recovery_rtt)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{show_share(share)}"


def _tries(tries: int) -> str:
    return "" if tries == 1 else f", the best of {tries}"
