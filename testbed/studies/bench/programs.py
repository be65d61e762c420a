"""Whether programs see the same without root: perftest on the emulated fabric and on the paced one.

The paced fabric is that of `testbed device`. Compared are the bandwidth of `ib_write_bw`, over a
link that falls silent, what that does to its flow, and the latency of `ib_write_lat`; then, with
eight hosts that all send and receive, how many packets each form carries a second.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from testbed.device.paced.fitting import measured
from testbed.emulation.experiment.calibration import calibrate
from testbed.model.errors import RunFailedError
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.faults.kinds import Blackhole
from testbed.model.files.topologies import load_topology
from testbed.model.run_files.layout import PROGRAMS
from testbed.model.scenario import Scenario
from testbed.model.summary.unit import NEVER
from testbed.model.units import show_number
from testbed.model.workload import Program
from testbed.runs.job import UNDRAWN
from testbed.runs.result import Result
from testbed.studies.bench.measure import (
    Measurement,
    Setting,
    at_least,
    at_most,
    no_target,
    not_measured,
)
from testbed.studies.bench.runs import make_runs

AGREES = 0.15
LEAST_RTT = 1.0
"""Differences of recovery count against one round trip at least: below, both say "at once"."""

LEAST_RATE = 0.5

_ROW = re.compile(r"^ \d+\s+\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", re.MULTILINE)
"""Of ib_write_bw peak and average, of ib_write_lat the least, the greatest and the typical."""

_COLUMNS = {"ib_write_bw": 1, "ib_write_lat": 2}
_FIGURES = (*_COLUMNS, "detection", "stall", "recovery")

_PAIR = "if [ $RANK = 0 ]; then exec {0}; fi; sleep 2; exec {0} $MASTER_ADDR"
_EIGHT = "if [ $RANK -lt 4 ]; then exec {0}; fi; sleep 2; exec {0} h$((RANK - 4))"
_CLIENTS = ("h4", "h5", "h6", "h7")
"""Those of `_EIGHT`, which name their servers; perftest's client does not wait for its server."""

_NO_PERFTEST = "no ib_write_bw here: apt install perftest"

Compared = tuple[dict[str, float], dict[str, float]]
"""The figures of programs, emulated and without root."""


def programs() -> Iterator[Scenario]:
    """Perftest's bandwidth, over a link that falls silent, and its latency."""
    hole = Blackhole(target="h4--p1_t0_1", at="5 s", **{"for": "3 s"})
    yield _scenario("agreement", "ib_write_bw -d mrc0 -n 800", _PAIR, ("h4", "h0"), hole)
    yield _scenario("agreement", "ib_write_lat -d mrc0 -n 40", _PAIR, ("h4", "h0"))


def _scenario(
    name: str, program: str, line: str, hosts: tuple[str, ...] | None, *faults: Blackhole
) -> Scenario:
    return Scenario(
        name=f"{name}-{program.partition(' ')[0].replace('_', '-')}",
        topology=load_topology("clos-4plane"),
        duration="60 s",
        workload=Program(command=("sh", "-c", line.format(program)), hosts=hosts),
        timeline=faults,
    )


def is_there() -> bool:
    """Whether perftest is installed."""
    return shutil.which("ib_write_bw") is not None


def figures_of(run: Result) -> dict[str, float]:
    """What the program says, and what the fault did to its flow, in round trips."""
    program = next(name for name in _COLUMNS if name.replace("_", "-") in run.summary.scenario)
    figures = {program: _printed(run, "h0", program)}
    for fault in run.summary.faults:
        for flow in fault.flows:
            times = {"detection": flow.detection, "stall": flow.stall, "recovery": flow.recovery}
            figures |= {
                name: float(time.rtt)
                for name, time in times.items()
                if time is not None and time.rtt != NEVER
            }
    return figures


def _printed(run: Result, host: str, program: str) -> float:
    text = (run.directory / PROGRAMS / f"{host}.log").read_text(encoding="utf-8")
    return figure_of(program, text)


def figure_of(program: str, output: str) -> float:
    """What a program of perftest has measured: MB/s on average, or the typical latency in us.

    Raises:
        RunFailedError: it has no result.
    """
    row = _ROW.search(output)
    if row is None:
        raise RunFailedError(f"{program} has no result: {output}")
    return float(row[1 + _COLUMNS[program]])


def seen(setting: Setting) -> tuple[list[Measurement], str]:
    """Whether programs see the same on both fabrics: by how much figures differ; a table."""
    rounds = setting.repeat("programs", lambda: _compare(setting)) if is_there() else []
    figures = [*_differences(rounds)]
    if is_there():
        return figures, table(rounds)
    return [not_measured(figure, _NO_PERFTEST) for figure in figures], ""


def _compare(setting: Setting) -> Compared:
    """Run each program on both fabrics; what of it is invalid gives no figures."""
    compared: Compared = {}, {}
    scenarios = list(programs())
    for scenario, emulated in zip(scenarios, make_runs(scenarios, setting), strict=True):
        paced = _paced(scenario, setting)
        if "invalid" not in (emulated.summary.verdict, paced.summary.verdict):
            compared[0].update(figures_of(emulated.run))
            compared[1].update(figures_of(paced))
    return compared


def _paced(scenario: Scenario, setting: Setting) -> Result:
    # It loads Polars, which starts threads: not before `calibrate` has forked a sandbox.
    from testbed.runs.making import make  # noqa: PLC0415

    setting.progress(f"{scenario.name}, on the simulated fabric")
    return make(scenario, "paced", setting.results, how=UNDRAWN)


def _differences(rounds: Sequence[Compared]) -> Iterator[Measurement]:
    """By how much the figures of programs differ; a sample for each round that has them."""
    for name, pairs in _pairs(rounds).items():
        least = 0.0 if name in _COLUMNS else LEAST_RTT
        off = [abs(one - other) / max(one, other, least) for one, other in pairs]
        yield at_most(f"{name} of programs off, without root", "", off, AGREES)


def _pairs(rounds: Sequence[Compared]) -> Mapping[str, list[tuple[float, float]]]:
    """Each figure, emulated and without root, in each round where one of the two has it."""
    return {
        name: [
            (emulated.get(name, 0.0), paced.get(name, 0.0))
            for emulated, paced in rounds
            if name in emulated or name in paced
        ]
        for name in _FIGURES
    }


def table(rounds: Sequence[Compared]) -> str:
    """As a table in Markdown: each figure on both fabrics, and their ratio, over the rounds."""
    rows = [
        "| programs: median (least to most) | emulated | without root | without root / emulated |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, pairs in _pairs(rounds).items():
        emulated, paced = ([pair[i] for pair in pairs] for i in range(2))
        ratios = [there / here for here, there in pairs if here]
        spreads = " | ".join(map(_spread, (emulated, paced, ratios)))
        rows.append(f"| {name}{_UNITS.get(name, ', RTT')} | {spreads} |")
    return "\n".join(rows) + "\n"


_UNITS = {"ib_write_bw": ", MB/s", "ib_write_lat": ", us"}


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle, least, most = (show_number(f(values)) for f in (median, min, max))
    return f"{middle} ({least} to {most})"


# --- how much each form carries ------------------------------------------------------------------


def device_rate(setting: Setting) -> list[Measurement]:
    """Packets a second that programs in eight hosts send, each form at the dilation it carries.

    That is what `auto` finds for it, however small.
    """
    share = at_least("packets/s of 8 hosts, without root / emulated", "", [], LEAST_RATE)
    if not is_there():
        return [not_measured(share, _NO_PERFTEST)]
    setting.progress("what this machine carries")
    scenario = _scenario("carried", "ib_write_bw -d mrc0 -b -n 400", _EIGHT, None)
    capacities = calibrate(lambda _what, _done: None), measured()
    here, there = (
        scenario.at_dilation(capacity.fitting_dilation(scenario)) for capacity in capacities
    )
    rounds = setting.repeat("programs in 8 hosts", lambda: _rates(here, there, setting))
    trusted = [rates for rates in rounds if rates is not None]
    if not trusted:
        return [not_measured(share, "no round without an invalid run; see results/*/*/report.html")]
    emulated, paced = zip(*trusted, strict=True)
    return [
        replace(share, samples=tuple(there / here for here, there in trusted)),
        no_target("packets/s of 8 hosts, emulated", "", emulated),
        no_target("packets/s of 8 hosts, without root", "", paced),
    ]


def _rates(here: Scenario, there: Scenario, setting: Setting) -> tuple[float, float] | None:
    """Packets a second, emulated and without root; None if a run is invalid."""
    (emulated,) = make_runs([here], setting)
    runs = emulated.run, _paced(there, setting)
    if any(run.summary.verdict == "invalid" for run in runs):
        return None
    one, other = (
        sum(_printed(run, host, "ib_write_bw") for host in _CLIENTS) * (1 << 20) / PAYLOAD_MTU
        for run in runs
    )
    return one, other
