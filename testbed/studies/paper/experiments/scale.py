"""Beyond emulation: collectives of the paper's 64 hosts, and 512 hosts that lose a T1."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from testbed.results.report.figures import style
from testbed.runs.job import Form
from testbed.runs.store import Results
from testbed.studies.paper.experiments import drawing
from testbed.studies.paper.experiments.collectives import (
    ALL_ROCE,
    DRAIN,
    LITTLE_GAIN,
    LITTLE_LOSS,
    LOSSES,
    MRC,
    NIC_TIMEOUT,
    ROCE_1,
    ROCE_2,
    ROCE_4,
    ROCE_8,
    ROCE_16,
    Sender,
    in_order,
    losses_at_nics,
)
from testbed.studies.paper.fabrics import PFC
from testbed.studies.paper.figure import (
    RATIO,
    Check,
    PaperFigure,
    Variant,
    at_least,
    at_most,
    between,
)
from testbed.studies.paper.rows import row

_TOO_LARGE: Mapping[Form, str] = {
    "emulated": "so many hosts are far beyond what a machine emulates"
}

_RACKS, _HOSTS_PER_RACK = 8, 8
_RING = [
    f"h{rack * _HOSTS_PER_RACK + host}" for host in range(_HOSTS_PER_RACK) for rack in range(_RACKS)
]
"""The ring of 64 hosts: every hop is between racks."""

SLICES = 4
"""Slices of each chunk: with fewer, hosts wait for one another more than they send."""

_WORKLOADS: Mapping[str, Mapping[str, Any]] = {
    "allreduce": {"hosts": _RING, "size": "32 MiB", "slices": SLICES},
    "alltoall": {"hosts": _RING, "size": "8 MiB"},
}
_DESCRIPTIONS = {
    "allreduce": "Ring all-reduce among 64 hosts, every hop of the ring between racks.",
    "alltoall": "All-to-all among 64 hosts.",
}

_CLOS: Mapping[str, Any] = {
    "t0_per_plane": _RACKS,
    "t1_per_plane": _HOSTS_PER_RACK,
    "hosts_per_t0": _HOSTS_PER_RACK,
}
_LOSSLESS = {**PFC, "name": "clos-64host-pfc", "planes": 1, **_CLOS}
_PLANES = {
    "name": "clos-64host-256path",
    "planes": 4,
    **_CLOS,
    "t1_per_plane": 64,
    "port_rate": "100 Gbit/s",
}
"""256 paths between two racks, as in the paper."""

_MRC = {**MRC.transport, "evs": 256}
"""With as many EVs as the paper's QPs have."""


def _collective(
    kind: str,
    name: str,
    transport: dict[str, Any],
    topology: dict[str, Any],
    seconds: int,
    carries: float,
    loss: float = 0.0,
) -> Variant:
    changes = {
        "description": _DESCRIPTIONS[kind],
        "topology": topology,
        "transport": transport,
        "workload": {"kind": kind, **_WORKLOADS[kind]},
        "duration": f"{seconds} s",
        "timeline": losses_at_nics(
            loss,
            seconds,
            planes=topology["planes"],
            hosts=len(_RING),
            hosts_per_t0=_HOSTS_PER_RACK,
        ),
    }
    suffix = f"-loss-{loss:g}" if loss else ""
    name = f"{kind}-64-{name}{suffix}"
    return Variant(
        name, "collective", changes, may_stall=True, excluded=_TOO_LARGE, carries=carries
    )


_ROCE = {"kind": "roce"}

_ALL_REDUCES = (
    _collective("allreduce", "mrc", _MRC, _PLANES, 20, 0.85),
    _collective("allreduce", ROCE_16.name, ROCE_16.transport, _LOSSLESS, 24, 0.75),
    _collective("allreduce", ROCE_8.name, ROCE_8.transport, _LOSSLESS, 28, 0.65),
    _collective("allreduce", ROCE_4.name, ROCE_4.transport, _LOSSLESS, 36, 0.5),
    _collective("allreduce", ROCE_2.name, ROCE_2.transport, _LOSSLESS, 50, 0.35),
    _collective("allreduce", "roce-1", _ROCE, _LOSSLESS, 68, 0.25),
    _collective("allreduce", "mrc", _MRC, _PLANES, 22, 0.75, LITTLE_LOSS),
    _collective("allreduce", "mrc", _MRC, _PLANES, 36, 0.35, max(LOSSES)),
)
"""Long enough for one all-reduce each, or for most of one: with 0.1% loss, and with RoCE and some
seeds. What is placed is then as good a measure, as a ring's hosts cannot go ahead of each other."""


def _all_to_all(sender: Sender, seconds: int, loss: float = 0.0) -> Variant:
    """One that ends a second after its time, whatever is under way: one all-to-all is over."""
    if sender is MRC:
        transport, topology, carries = _MRC, _PLANES, 0.85
    else:
        transport = sender.transport | (NIC_TIMEOUT if loss else {})
        topology, carries = _LOSSLESS, 0.75
    variant = _collective("alltoall", sender.name, transport, topology, seconds, carries, loss)
    return replace(variant, changes={**variant.changes, "drain": DRAIN})


_ALL_TO_ALLS = (
    _all_to_all(MRC, 3),
    _all_to_all(ROCE_1, 5),
    _all_to_all(ROCE_2, 5),
    _all_to_all(MRC, 6, LITTLE_LOSS),
    _all_to_all(ROCE_1, 12, LITTLE_LOSS),
)
"""Each host sends to 63 others. With 16 QPs for each there are 64,512, which take too long
for several seeds (docs/paper/studies.md)."""


def _rate(runs: Results, kind: str, sender: Sender, loss: float = 0.0) -> float:
    """The bus bandwidth of a run, per host, in real Gb/s."""
    suffix = f"-loss-{loss:g}" if loss else ""
    return drawing.bus_gbps(runs[f"{kind}-64-{sender.name}{suffix}"])


def _judge_all_reduce(runs: Results) -> tuple[Check, ...]:
    rate = partial(_rate, runs, "allreduce")
    mrc, roce_1, roce_8, roce_16 = (rate(sender) for sender in (MRC, ROCE_1, ROCE_8, ROCE_16))
    little, much = (rate(MRC, loss) / mrc for loss in (LITTLE_LOSS, max(LOSSES)))
    return (
        *in_order(mrc, roce_1, roce_16),
        at_most("RoCE with 16 QPs over 8", roce_16 / roce_8, LITTLE_GAIN, RATIO),
        at_least("MRC at 0.1% loss, of its rate", little, 0.85, "{:.0%}"),
        between("MRC at 1% loss, of its rate", much, 0.2, 0.5, "{:.0%}"),
    )


def _judge_all_to_all(runs: Results) -> tuple[Check, ...]:
    """Judge as figure 17 is judged at its smaller size: 128 KiB for each host are few packets."""
    rate = partial(_rate, runs, "alltoall")
    mrc, roce_1, roce_2 = (rate(sender) for sender in (MRC, ROCE_1, ROCE_2))
    lossy = rate(ROCE_1, LITTLE_LOSS) / roce_1
    return (
        at_least("MRC over RoCE with 1 QP", mrc / roce_1, 1.0, RATIO),
        at_least("MRC over RoCE with 2 QPs", mrc / roce_2, 1.0, RATIO),
        at_most("RoCE with 1 QP at 0.1% loss, of its rate", lossy, 0.5, "{:.0%}"),
        at_least("MRC at 0.1% loss, of its rate", rate(MRC, LITTLE_LOSS) / mrc, 0.7, "{:.0%}"),
    )


_DRAWN = {
    "allreduce": (*((roce, 0.0) for roce in ALL_ROCE), *((MRC, loss) for loss in LOSSES)),
    "alltoall": (
        (ROCE_1, 0.0),
        (ROCE_2, 0.0),
        (MRC, 0.0),
        (ROCE_1, LITTLE_LOSS),
        (MRC, LITTLE_LOSS),
    ),
}


def _draw_rates(runs: Results, kind: str) -> Figure:
    """A bar for each run, with the rate of a host's ports."""
    figure, (axes,) = drawing.new_panels(2.6)
    for sender, loss in _DRAWN[kind]:
        label = f"{sender.label}, {100 * loss:g}% loss" if loss else sender.label
        bars = axes.barh(label, _rate(runs, kind, sender, loss), color=sender.colour, height=0.6)
        axes.bar_label(bars, fmt="%.0f", padding=4, fontsize=7)
    axes.axvline(drawing.PORTS_GBPS, color=style.BLACK, linestyle=drawing.DASHED)
    axes.set_xlabel("bus bandwidth per host (Gb/s, real-equivalent)")
    return figure


# --- 512 hosts ----------------------------------------------------------------------------------


def _draw_many(runs: Results) -> Figure:
    run = drawing.only(runs)
    figure, (axes,) = drawing.new_panels(2.6)
    rtt, end = run.data.base_rtt_s, run.data.end_s
    moments = np.arange(0, end, rtt / 8)
    rates = np.array([drawing.sliding(run, [flow], moments, rtt) for flow in run.flows])
    low, middle, high = np.quantile(rates, (0.01, 0.5, 0.99), axis=0)
    x = drawing.us_per_s(run) * moments
    axes.fill_between(x, low, high, color=style.SKY, alpha=0.5, label="98 of 100 flows")
    axes.plot(x, middle, color=style.BLUE, label="the median flow")
    ports = drawing.gbps(run, run.flows[0].flow.ports_bps)
    drawing.limit_line(axes, ports, "share of the ports")
    drawing.shade_faults(axes, run)
    axes.set_ylim(0, 1.2 * ports)
    drawing.time_axes(axes, run)
    axes.set_ylabel(drawing.RATE_LABEL)
    drawing.legend_below(figure, 4)
    return figure


SCALE = (
    PaperFigure(
        "16x64", _ALL_REDUCES, _judge_all_reduce, partial(_draw_rates, kind="allreduce"), large=True
    ),
    PaperFigure(
        "17x64", _ALL_TO_ALLS, _judge_all_to_all, partial(_draw_rates, kind="alltoall"), large=True
    ),
    row(
        "scale",
        "many-hosts",
        _draw_many,
        runs={"t1-death-512": {"excluded": _TOO_LARGE}},
        large=True,
        is_own=True,
    ),
)
