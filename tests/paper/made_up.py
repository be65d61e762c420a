"""Runs that nobody made: of each as much as judging a figure asks for, from a few numbers."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl

from testbed.model.faults.kinds import Kill
from testbed.model.run_files.content import FlowRecord
from testbed.model.scenario import Scenario
from testbed.model.summary import Time
from testbed.model.workload import members
from testbed.results.analysis.attainable import AttainableRate
from testbed.results.analysis.delivery import FlowDelivery, InOrder, Span
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.records import ARRIVALS, Table
from testbed.runs.result import Result
from testbed.studies.paper.planning import FIGURES, plan_variant

RTT_S = 0.13
DILATION = 10_000.0
SECONDS = 15.0
LINE_BPS = 40e6
"""400 Gb/s at full speed."""

_STEP_S = 0.005
"""Between arrivals."""

Steps = Sequence[tuple[float, float]]
"""From when on, in seconds of the run, which share of line rate; the first from its beginning."""

VARIANTS = {variant.name: variant for figure in FIGURES for variant in figure.variants}


@cache
def scenario_of(name: str) -> Scenario:
    """The scenario of a variant, as it is simulated."""
    return plan_variant(VARIANTS[name], "simulated").scenario


def run(
    *recorded: FlowTables,
    faults: Sequence[object] = (),
    data: Mapping[str, Any] | None = None,
    tables: Mapping[Table, pl.DataFrame] | None = None,
    outcomes: Sequence[object] = (),
    **summary: object,
) -> Result:
    """A trusted run of `SECONDS`, in which nothing went wrong; as far as it is not said otherwise.

    Args:
        recorded: by its flows.
        faults: as in its summary.
        data: more attributes of its records.
        tables: more of its records, all of one flow.
        outcomes: what became of its flows.
        summary: more fields of its summary.
    """
    made = {ARRIVALS: pl.DataFrame({"t": [SECONDS]}), **(tables or {})}
    usual: dict[str, object] = {
        "dilation": DILATION,
        "verdict": "trusted",
        "reasons": (),
        "integrity": SimpleNamespace(bytes_lost=0, bytes_corrupted=0),
        "qps_in_error": 0,
        "flows": (),
        "operations": (),
    }
    return cast(
        "Result",
        SimpleNamespace(
            flows=recorded,
            summary=SimpleNamespace(faults=faults, **(usual | summary)),
            data=SimpleNamespace(
                run=SimpleNamespace(duration_s=SECONDS, flows=outcomes),
                faults=(),
                base_rtt_s=RTT_S,
                end_s=min(SECONDS, cast("float", made[ARRIVALS]["t"].max())),
                tables=made,
                table=lambda table, _flow: made[table],
                **(data or {}),
            ),
        ),
    )


def flow(
    src: str = "h0",
    dst: str = "h1",
    rate: Steps = ((0.0, 1.0),),
    *,
    allowed: Steps = ((0.0, 1.0),),
    gap: tuple[float, float] = (0.0, 0.0),
    spans: Mapping[int, tuple[Span, ...]] | None = None,
    sent: pl.DataFrame | None = None,
    lost: Sequence[float] = (),
    sent_lost: Sequence[tuple[float, int]] = (),
) -> FlowTables:
    """A flow at these rates, with nothing in a gap; what links allow; what it sent and lost."""
    times = np.arange(_STEP_S, SECONDS + _STEP_S / 2, _STEP_S)
    starts, shares = np.array(rate).T
    now = shares[np.searchsorted(starts, times - _STEP_S, side="right") - 1]
    now = np.where((times > gap[0]) & (times <= gap[1]), 0.0, now)
    placed = np.cumsum(now * LINE_BPS * _STEP_S / 8).astype(np.int64)
    rate_allowed = AttainableRate(
        (-inf, *(t for t, _ in allowed[1:])), tuple(share * LINE_BPS for _, share in allowed)
    )
    return FlowTables(
        flow=FlowRecord(flow=0, src=src, dst=dst, transport="mrc", ports_bps=LINE_BPS),
        attainable=rate_allowed,
        ideal=rate_allowed,
        delivery=FlowDelivery(times, placed, times),
        in_order=InOrder(times, times),
        spans=dict(spans or {}),
        transmissions=pl.DataFrame() if sent is None else sent,
        losses=_losses(sent_lost)
        if sent_lost
        else pl.DataFrame({"t": [*lost]}, schema={"t": pl.Float64}),
    )


def _losses(sent: Sequence[tuple[float, int]]) -> pl.DataFrame:
    """Packets that were lost, by when they were sent and on which EV."""
    return pl.DataFrame({"sent_t": [t for t, _ in sent], "ev": [ev for _, ev in sent]})


def faults_of(scenario: Scenario, **effects: Any) -> list[Any]:
    """The faults of a scenario, all of which heal, each with these effects."""
    lasting = [fault for fault in scenario.timeline if not isinstance(fault, Kill)]
    ends = [fault.at + (fault.for_ or 0) for fault in lasting]
    return [
        SimpleNamespace(effective_s=fault.at / 1e9, healed_s=end / 1e9, **effects)
        for fault, end in zip(lasting, ends, strict=True)
    ]


def over_time(
    name: str,
    *,
    during: float,
    after: float,
    loses: float = 0.0,
    stall: float = 1.3,
    gap: tuple[float, float] = (0.0, 0.0),
) -> Result:
    """One flow of a variant, at line rate until the first of its faults.

    Args:
        name: the variant's.
        during: its share of what links allow while there are faults.
        after: the same when all are healed.
        loses: the share of what links allow that each fault takes.
        stall: the longest that each kept the flow from delivering in order, in base RTTs.
        gap: when nothing arrives.
    """
    scenario = scenario_of(name)
    faults = faults_of(scenario, stall=Time(rtt=stall))
    changes = sorted({t for fault in faults for t in (fault.effective_s, fault.healed_s)})
    taken = [loses * sum(f.effective_s <= t < f.healed_s for f in faults) for t in changes]
    allowed = [(0.0, 1.0), *((t, 1 - share) for t, share in zip(changes, taken, strict=True))]
    of_it = [1.0, *(during for _ in changes[1:]), after]
    rate = [(t, share * part) for (t, share), part in zip(allowed, of_it, strict=True)]
    data = {"scenario": scenario, "topology": scenario.topology}
    return run(flow(rate=rate, allowed=allowed, gap=gap), faults=faults, data=data)


def collective(
    share: float,
    until_s: float = SECONDS,
    *,
    variant: str = "allreduce-16m-mrc",
    placed_bps: float = LINE_BPS / 40,
) -> Result:
    """A run whose collectives reach a share of the ports' rate; of 0, that finished none.

    Args:
        share: of the ports' rate; 0 if it finished none.
        until_s: when the last data arrived.
        variant: whose workload and fabric it has.
        placed_bps: what each host placed until then.
    """
    scenario = scenario_of(variant)
    hosts = members(getattr(scenario.workload, "hosts", None), scenario.topology)
    return run(
        operations=(SimpleNamespace(busbw_bps=share * LINE_BPS, count=int(share > 0)),),
        flows=tuple(SimpleNamespace(dst=host, goodput_run_bps=placed_bps) for host in hosts),
        tables={ARRIVALS: pl.DataFrame({"t": [until_s]})},
        data={"scenario": scenario, "topology": scenario.topology},
    )


def steps(length_s: Callable[[float], float]) -> pl.DataFrame:
    """Training steps of one host after one another, each so long as is said of its beginning."""
    starts = [0.0]
    while starts[-1] < SECONDS:
        starts.append(starts[-1] + length_s(starts[-1]))
    count = len(starts) - 1
    return pl.DataFrame(
        {
            "t": starts[1:],
            "start_t": starts[:-1],
            "host": ["h0"] * count,
            "kind": ["step"] * count,
            "number": [*range(count)],
            "bytes": [1] * count,
            "hosts": [1] * count,
        }
    )


def messages(overdue_rtts: float, at_s: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Completions and transmissions of messages that take a base RTT, but one: overdue so long.

    One begins every 0.2 s, that one at `at_s`.
    """
    begun = np.arange(at_s % 0.2, SECONDS - 2.0, 0.2)
    late = np.isclose(begun, at_s) * (0.5 + overdue_rtts) * RTT_S
    numbers, sizes = np.arange(len(begun)), np.full(len(begun), 4096)
    return (
        pl.DataFrame({"flow": 0, "message": numbers, "bytes": sizes, "t": begun + RTT_S + late}),
        pl.DataFrame({"flow": 0, "seq": numbers, "bytes": sizes, "t": begun}),
    )
