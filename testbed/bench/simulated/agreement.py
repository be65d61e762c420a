"""Whether the simulator says what the emulation measures: the same scenarios in both.

Goodput is that of the steady window, against what is attainable, mean over the flows; recovery is
that of the worst flow, in round trips. The simulator keeps the emulation's timing: compared are the
transport and the queues, not where on its way a packet is delayed. Both run at the dilation that
this machine carries at the moment, as many round trips long. A table is left beside the pictures.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean

from testbed.bench.figure import Figure, at_least, at_most
from testbed.bench.runs import fitted, run_until_trusted
from testbed.bench.setting import Setting
from testbed.experiment.calibration import calibrate
from testbed.files.topologies import load_topology
from testbed.model.faults.kinds import Blackhole, Cut, Fault, Loss
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.workload import WriteBw
from testbed.results.analyse import analyse
from testbed.results.run_directory import RunDirectory
from testbed.results.summary import Summary
from testbed.sim import Timing, simulate

AGREES = 0.15
DURATION = "5 s"
TIMES = {"at": "2 s", "for": "1.5 s"}
LEAST_RTT = 1.0
"""Differences of recovery count against one round trip at least: below, both say "at once"."""

TABLE = "agreement.md"

_VERDICTS = ("trusted", "degraded", "invalid")

_PAIR = (("h0", "h4"),)
_ALL = (("h0", "h4"), ("h1", "h5"), ("h2", "h6"), ("h3", "h7"))


@dataclass(frozen=True, slots=True)
class Told:
    """What one run says: goodput by what is attainable, recovery, its verdict.

    Recovery is None without a fault, infinite where goodput stays below what the fault leaves.
    """

    goodput: float
    recovery_rtt: float | None
    verdict: str

    @classmethod
    def by(cls, summary: Summary) -> "Told":
        """Take it from a summary."""
        recoveries = [fault.recovery_rtt for fault in summary.faults]
        recovery = next((math.inf if one is None else one for one in recoveries), None)
        goodput = mean(flow.attainable_fraction for flow in summary.flows)
        return cls(goodput, recovery, summary.verdict)


@dataclass(frozen=True, slots=True)
class Compared:
    """One scenario in both, at a dilation; `tries` is how often it was emulated."""

    name: str
    dilation: float
    emulated: Told
    simulated: Told
    tries: int

    @property
    def judged(self) -> bool:
        """Whether the emulated run says anything: not if the machine was the limit."""
        return self.emulated.verdict != "invalid"

    @property
    def goodput_off(self) -> float:
        """By what share goodput differs."""
        return abs(self.simulated.goodput / self.emulated.goodput - 1)

    @property
    def recovery_off(self) -> float | None:
        """By what share recovery differs; None without a fault."""
        measured, told = self.emulated.recovery_rtt, self.simulated.recovery_rtt
        if measured is None or told is None:
            return None
        if math.inf in (measured, told):
            return 0.0 if measured == told else math.inf
        return abs(told - measured) / max(told, measured, LEAST_RTT)


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


def agreement(setting: Setting) -> list[Figure]:
    """Run every scenario in both, the emulation again where a run is not trusted.

    Of an invalid run there is no figure: the table tells of it, and so does the first figure.
    """
    rounds = []
    for _ in range(setting.repeats):
        setting.progress("what this machine carries")
        capacity = calibrate(lambda _what, _done: None)
        rounds.append([_compare(fitted(scenario, capacity), setting) for scenario in scenarios()])
    of_each = list(zip(*rounds, strict=True))
    (setting.pictures / TABLE).write_text(table([one for runs in of_each for one in runs]))
    judged = [sum(one.judged for one in of_one) for of_one in rounds]
    return [
        at_least("emulated runs that are not invalid", "", judged, len(of_each)),
        *(figure for runs in of_each for figure in _differences(runs)),
    ]


def _differences(runs: Sequence[Compared]) -> Iterator[Figure]:
    """By how much the two differ in one scenario, a sample for each round."""
    judged = [one for one in runs if one.judged]
    if not judged:
        return
    name = judged[0].name
    yield at_most(f"goodput off, {name}", "", [one.goodput_off for one in judged], AGREES)
    recovery = [one.recovery_off for one in judged if one.recovery_off is not None]
    if recovery:
        yield at_most(f"recovery off, {name}", "", recovery, AGREES)


def _compare(scenario: Scenario, setting: Setting) -> Compared:
    summaries = run_until_trusted(scenario, setting, f"{scenario.name}, emulated")
    told = [Told.by(one) for one in summaries]
    setting.progress(f"{scenario.name}, simulated")
    simulated = Told.by(_simulate(scenario, setting.results))
    name = scenario.name.removeprefix("agreement-")
    best = min(told, key=lambda one: _VERDICTS.index(one.verdict))
    return Compared(name, scenario.topology.dilation, best, simulated, len(told))


def _simulate(scenario: Scenario, results: Path) -> Summary:
    started = datetime.now().astimezone()
    directory = RunDirectory.create(results, f"simulated-{scenario.name}", scenario.seed, started)
    simulate(scenario, directory.path, timing=Timing.EMULATED)
    return analyse(directory.path)


def table(compared: Sequence[Compared]) -> str:
    """As a table in Markdown: each figure emulated, simulated, and by how much they differ."""
    heads = "goodput / attainable, emulated", "simulated", "off", "recovery (RTT), emulated"
    rows = [
        f"| scenario | dilation | {' | '.join(heads)} | simulated | off | emulated run |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in compared:
        emulated, simulated = one.emulated, one.simulated
        rows.append(
            f"| {one.name} | {one.dilation:g} "
            f"| {emulated.goodput:.3f} | {simulated.goodput:.3f} | {one.goodput_off:.1%} "
            f"| {_rtts(emulated)} | {_rtts(simulated)} | {_percent(one.recovery_off)} "
            f"| {emulated.verdict}{_tries(one.tries)} |"
        )
    return "\n".join(rows) + "\n"


def _rtts(told: Told) -> str:
    if told.recovery_rtt is None:
        return ""
    return "none" if told.recovery_rtt == math.inf else f"{told.recovery_rtt:.2f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _tries(tries: int) -> str:
    return "" if tries == 1 else f", the best of {tries}"
