"""Collectives: figures 16 and 17, and beyond emulation.

Figures 16 and 17 have several sizes of the buffer and several transports. Beyond emulation are
collectives of the paper's 64 hosts, and 512 hosts that lose a T1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import inf
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.results.report.figures import style
from testbed.runs.job import Form
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments import drawing
from testbed.studies.paper.experiments.drawing import (
    PORTS_GBPS,
    bus_gbps,
    legend_below,
    limit_line,
    new_panels,
)
from testbed.studies.paper.figure import (
    RATIO,
    Check,
    PaperFigure,
    Variant,
    at_least,
    at_most,
    between,
    shown,
)
from testbed.studies.paper.rows import PFC, row

RING = ("h0", "h4", "h1", "h5", "h2", "h6", "h3", "h7")
"""Every hop of it is between racks."""

SMALL_MIB, LARGE_MIB = SIZES_MIB = (4, 16)
"""Of the buffer. The paper's go from 4 MB to 16 GB; a chunk of our 16 MiB among 8 hosts is as long
as one of its 128 MB among 64. 4 MiB, the paper's smallest, are six base RTTs of a host's rate;
larger buffers take too long to be emulated."""

RACKS_OF_TWO = {"t0_per_plane": 4, "hosts_per_t0": 2, "t1_per_plane": 2}
"""Of the all-to-all: six sevenths of it are between racks, as of the paper's 64 hosts most is. In
racks of four it is four sevenths, and uplinks that a hash loads unevenly are not full yet."""

LITTLE_LOSS = 0.001
LOSSES = (0.0, LITTLE_LOSS, 0.01)


@dataclass(frozen=True, slots=True)
class Sender:
    """A transport as a curve of the figures.

    Attributes:
        name: for names of runs.
        label: for legends.
        transport: the scenario's key.
        topology: the fabric that it is for.
        colour: of its curve.
        seconds: how long a run lasts, by the size: one all-reduce without loss and some more.
    """

    name: str
    label: str
    transport: dict[str, Any]
    topology: str
    colour: str
    seconds: tuple[int, ...]


EVS = 128
"""Of a QP: the paper has 128 to 256. They share the fabric's 16 paths; with one EV a path each loss
would cost a QP a sixteenth of its EVs, and 1% loss half of its rate (docs/paper/studies.md)."""

MRC = Sender(
    "mrc",
    "MRC, 1 QP",
    {"kind": "mrc", "congestion": "nscc", "evs": EVS},
    "clos-4plane",
    style.BLUE,
    (4, 8),
)


def _roce(qps: int, colour: str, seconds: tuple[int, int]) -> Sender:
    label = f"RoCE, {qps} QP{'s' if qps > 1 else ''}"
    transport = {"kind": "roce", "qps": qps}
    return Sender(f"roce-{qps}", label, transport, "clos-1plane-roce", colour, seconds)


ROCE_1 = _roce(1, style.ORANGE, (10, 30))
ROCE_2 = _roce(2, style.GREEN, (9, 26))
ROCE_4 = _roce(4, style.PURPLE, (8, 20))
ROCE_8 = _roce(8, style.SKY, (7, 16))
ROCE_16 = _roce(16, style.VERMILLION, (6, 14))
ALL_ROCE = (ROCE_1, ROCE_2, ROCE_4, ROCE_8, ROCE_16)
SENDERS = (MRC, *ALL_ROCE)

FEW_SENDERS = (MRC, ROCE_1, ROCE_16)
"""Of which all that is emulated with one seed."""

NIC_TIMEOUT = {"ack_timeout": "67.1 ms"}
"""What RoCE waits for an acknowledgement where packets are lost: 4.096 us x 2^14, the shortest in
common use (perftest's default; NCCL's is 2^20). The testbed's own default is far kinder."""


DRAIN = "1 s"
"""How long a run that may stall waits after its end. Data that waits for `NIC_TIMEOUT`, 671 s of
emulated time, would not arrive in any reasonable time."""


_ONE_SIZE = f"eight hosts at full rate take a minute a run with more than {SMALL_MIB} MiB"
_ENDS_OF_QPS = "with loss, of RoCE 1 and 16 QPs are emulated"


def _name(kind: str, sender: Sender, loss: float, size_mib: int) -> str:
    suffix = f"-loss-{loss:g}" if loss else ""
    return f"{kind}-{size_mib}m-{sender.name}{suffix}"


def _variant(kind: str, sender: Sender, loss: float, size_mib: int) -> Variant:
    place = SIZES_MIB.index(size_mib)
    seconds = sender.seconds[place]
    if loss == max(LOSSES):  # long enough for MRC at a third of its rate, as in the paper
        seconds = 3 * seconds if sender is MRC else ROCE_1.seconds[place]
    workload = {"kind": kind, "hosts": list(RING), "size": f"{size_mib} MiB"}
    may_stall = bool(loss) and sender is not MRC
    return Variant(
        _name(kind, sender, loss, size_mib),
        "collective",
        {
            "topology": _fabric(kind, sender),
            "transport": sender.transport | (NIC_TIMEOUT if may_stall else {}),
            "workload": workload,
            "duration": f"{seconds} s",
            "drain": DRAIN if may_stall else None,
            "timeline": losses_at_nics(
                loss,
                seconds,
                planes=4 if sender is MRC else 1,
                hosts=len(RING),
                hosts_per_t0=RACKS_OF_TWO["hosts_per_t0"] if kind == "alltoall" else 4,
            ),
        },
        may_stall=may_stall,
        excluded=_excluded(sender, loss, size_mib),
        repeated_only=sender not in FEW_SENDERS
        or loss == LITTLE_LOSS
        or (kind == "alltoall" and loss > 0),
    )


def losses_at_nics(
    loss: float, seconds: int, *, planes: int, hosts: int, hosts_per_t0: int
) -> list[dict[str, Any]]:
    """A timeline in which every NIC loses a share of the packets that arrive; empty without loss.

    Each packet crosses one of the directions into the hosts, which lose it. They do so nearly from
    the start to the end of a run.

    Args:
        loss: the share.
        seconds: how long the run lasts.
        planes: of the fabric.
        hosts: of the fabric.
        hosts_per_t0: of the fabric.
    """
    if not loss:
        return []
    last_hops = [
        f"p{plane}_t0_{host // hosts_per_t0}>h{host}"
        for plane, host in product(range(planes), range(hosts))
    ]
    lossy = {
        "kind": "loss",
        "target": last_hops,
        "probability": loss,
        "at": "300 ms",  # goodput is compared with that before a fault
        "for": f"{seconds * 1000 - 301} ms",  # a fault must be healed within the run
    }
    return [lossy]


def _excluded(sender: Sender, loss: float, size_mib: int) -> dict[Form, str]:
    if size_mib > SMALL_MIB:
        return {"emulated": _ONE_SIZE}
    return {"emulated": _ENDS_OF_QPS} if loss and sender not in FEW_SENDERS else {}


def _fabric(kind: str, sender: Sender) -> str | dict[str, Any]:
    """The sender's, for an all-to-all with its hosts in racks of two."""
    if kind != "alltoall":
        return sender.topology
    return {"base": sender.topology, "name": f"{sender.topology}-racks-of-two", **RACKS_OF_TWO}


@dataclass(frozen=True, slots=True)
class _Shares:
    """Shares of the ports' rate that senders reached in a collective, with buffers of one size."""

    runs: Results
    kind: str
    size_mib: int

    def of(self, sender: Sender, loss: float = 0.0) -> float:
        """What a sender reached with a share of loss."""
        run = self.runs[_name(self.kind, sender, loss, self.size_mib)]
        return bus_gbps(run) / PORTS_GBPS

    def kept(self, sender: Sender, loss: float) -> float:
        """What is left of it with a share of loss, relative to that without."""
        return self.of(sender, loss) / self.of(sender)

    def has(self, *senders: Sender, loss: float = 0.0) -> bool:
        """Whether these were run."""
        names = (_name(self.kind, sender, loss, self.size_mib) for sender in senders)
        return all(name in self.runs for name in names)


def _sizes(runs: Results, kind: str, loss: float = 0.0) -> list[int]:
    """The sizes that were run, with a share of loss."""
    return [size for size in SIZES_MIB if _name(kind, MRC, loss, size) in runs]


def _all_reduce(runs: Results) -> tuple[Check, ...]:
    sizes = [_Shares(runs, "allreduce", size) for size in _sizes(runs, "allreduce")]
    checks = [check for shares in sizes for check in _of_size(shares)]
    if len(sizes) == 1 and sizes[0].has(MRC, loss=LITTLE_LOSS):
        kept = sizes[0].kept(MRC, LITTLE_LOSS)
        checks.append(shown(f"MRC at 0.1% loss, of its rate, {SMALL_MIB} MiB", kept, "{:.0%}"))
    if all(shares.has(MRC, loss=LITTLE_LOSS) for shares in sizes) and len(sizes) > 1:
        small, large = (shares.kept(MRC, LITTLE_LOSS) for shares in sizes)
        what = "MRC at 0.1% loss: what large buffers keep, over what small ones do"
        checks.append(at_least(what, large / small, 1.0, RATIO))
    return tuple(checks)


def _of_size(shares: _Shares) -> Iterator[Check]:
    of_size = f", {shares.size_mib} MiB"
    mrc, roce_1, roce_16 = (shares.of(sender) for sender in FEW_SENDERS)
    yield from in_order(mrc, roce_1, roce_16, of_size)
    if shares.has(ROCE_8):
        what = f"RoCE with 16 QPs over 8{of_size}"
        yield at_most(what, roce_16 / shares.of(ROCE_8), LITTLE_GAIN, RATIO)
    if shares.size_mib == LARGE_MIB:  # the paper says so of large messages
        share = shares.kept(MRC, LITTLE_LOSS)
        yield at_least(f"MRC at 0.1% loss, of its rate{of_size}", share, 0.85, "{:.0%}")
    share = shares.kept(MRC, 0.01)
    yield between(f"MRC at 1% loss, of its rate{of_size}", share, 0.2, 0.5, "{:.0%}")
    for sender in ALL_ROCE:
        if shares.has(sender, loss=0.01):
            what = f"{sender.label}, at 1% loss, of the ports' rate{of_size}"
            yield at_most(what, shares.of(sender, 0.01), 0.2, "{:.0%}")


LITTLE_GAIN = 1.15
"""Two seeds of the same run differ by as much."""


def in_order(mrc: float, roce_1: float, roce_16: float, of_size: str = "") -> Iterator[Check]:
    """Check that MRC's all-reduce is ahead of RoCE's with 16 QPs, and this of that with one.

    Args:
        mrc: MRC's rate.
        roce_1: RoCE's with one QP, in the same unit.
        roce_16: RoCE's with 16 QPs.
        of_size: the end of what each check says.
    """
    yield at_least(f"MRC over RoCE with 16 QPs{of_size}", mrc / roce_16, 1.0, RATIO)
    yield at_least(f"RoCE with 16 QPs over 1 QP{of_size}", roce_16 / roce_1, 1.0, RATIO)
    what = f"RoCE with 1 QP, of MRC's rate{of_size}"
    yield between(what, roce_1 / mrc, 0.25, 0.65, "{:.0%}")


def _all_to_all(runs: Results) -> tuple[Check, ...]:
    sizes = [_Shares(runs, "alltoall", size) for size in _sizes(runs, "alltoall")]
    checks = [check for shares in sizes for check in _all_to_all_of_size(shares)]
    if len(sizes) > 1:  # the paper: most where bandwidth limits
        small, large = map(_over_best_roce, sizes)
        what = "MRC over the best RoCE, with large buffers over with small ones"
        checks.append(at_least(what, large / small, 1.0, RATIO))
    return tuple(checks)


def _over_best_roce(shares: _Shares) -> float:
    """MRC's rate without loss, over that of the number of QPs that is best for RoCE."""
    senders = [sender for sender in ALL_ROCE if shares.has(sender)]
    return shares.of(MRC) / max(shares.of(sender) for sender in senders)


def _all_to_all_of_size(shares: _Shares) -> Iterator[Check]:
    of_size = f", {shares.size_mib} MiB"
    yield at_least(f"MRC over the best RoCE{of_size}", _over_best_roce(shares), 1.0, RATIO)
    more_qps = shares.of(ROCE_16) / shares.of(ROCE_1)
    what = f"RoCE with 16 QPs over 1 QP{of_size}"
    yield between(what, more_qps, SLIGHTLY_WORSE, 1.0, RATIO)
    if shares.has(ROCE_2):
        two = shares.of(ROCE_2) / shares.of(ROCE_16)
        yield at_least(f"RoCE with 2 QPs over 16{of_size}", two, 1.0, RATIO)
    with_loss = [sender for sender in ALL_ROCE if shares.has(sender, loss=LITTLE_LOSS)]
    if not with_loss:
        return
    if shares.size_mib == LARGE_MIB:
        share = shares.kept(ROCE_16, LITTLE_LOSS)
        yield at_least(f"RoCE with 16 QPs at 0.1% loss, of its rate{of_size}", share, 0.8, "{:.0%}")
        return
    best = max(shares.kept(sender, LITTLE_LOSS) for sender in with_loss)
    mrc = shares.kept(MRC, LITTLE_LOSS)
    what = f"RoCE at 0.1% loss, of its rate, the best{of_size}"
    yield between(what, best, -inf, 0.5, "{:.0%}")
    yield at_least(f"MRC at 0.1% loss, of its rate{of_size}", mrc, 0.7, "{:.0%}")


SLIGHTLY_WORSE = 0.85
""""Slightly worse" is no more than this; the paper gives no figure."""


def _draw(runs: Results, kind: str) -> Figure:
    """Draw a panel for each share of loss."""
    losses = [loss for loss in LOSSES if _sizes(runs, kind, loss)]
    figure, panels = new_panels(3.1, columns=len(losses), sharey=True)
    for axes, loss in zip(panels, losses, strict=True):
        _plot(axes, runs, kind, loss)
        axes.set_title(f"{100 * loss:g}% loss" if loss else "no loss")
    panels[0].set_ylabel("bus bandwidth per host\n(Gb/s, real-equivalent)")
    legend_below(figure, 4, panels[0])
    return figure


def _plot(axes: Axes, runs: Results, kind: str, loss: float) -> None:
    """Draw a curve for each sender over the sizes; of a single size a bar."""
    sizes = _sizes(runs, kind, loss)
    ran = [sender for sender in SENDERS if _name(kind, sender, loss, sizes[0]) in runs]
    for place, sender in enumerate(ran):
        runs_by_size = [runs[_name(kind, sender, loss, size)] for size in sizes]
        if len(sizes) == 1:
            _bar(axes, sender, place, runs_by_size[0])
        else:
            _curve(axes, sender, sizes, runs_by_size)
    limit_line(axes, PORTS_GBPS, "ports' rate")
    if len(sizes) == 1:
        axes.set_xticks([])
        axes.set_xlim(-0.8, len(ran) - 0.2)
        axes.set_xlabel(f"{sizes[0]} MiB per host")
    else:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size}" for size in sizes])
        axes.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
        axes.set_xlabel("buffer per host (MiB)")
    axes.set_ylim(0, 1.1 * PORTS_GBPS)


def _curve(axes: Axes, sender: Sender, sizes: Sequence[int], runs: Sequence[Result]) -> None:
    rates = [bus_gbps(run) for run in runs]
    axes.plot(sizes, rates, color=sender.colour, label=sender.label)
    for size, rate, run in zip(sizes, rates, runs, strict=True):
        face = _face(sender, run)
        axes.plot(size, rate, "o", markersize=4, color=sender.colour, markerfacecolor=face)


def _bar(axes: Axes, sender: Sender, place: int, run: Result) -> None:
    look: Any = {"color": _face(sender, run), "edgecolor": sender.colour, "linewidth": 1.2}
    bars = axes.bar(place, bus_gbps(run), width=0.6, label=sender.label, **look)
    axes.bar_label(bars, fmt="%.0f", padding=1.5, fontsize=7)


def _face(sender: Sender, run: Result) -> str:
    """White if no operation was completed."""
    return sender.colour if any(each.count for each in run.summary.operations) else "white"


_EVERY = tuple(product(SENDERS, LOSSES, SIZES_MIB))
_ALL_REDUCES = tuple(_variant("allreduce", *each) for each in _EVERY)
_ALL_TO_ALLS = tuple(_variant("alltoall", *each) for each in _EVERY)

COLLECTIVES = (
    PaperFigure("16", _ALL_REDUCES, _all_reduce, partial(_draw, kind="allreduce")),
    PaperFigure("17", _ALL_TO_ALLS, _all_to_all, partial(_draw, kind="alltoall")),
)


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

_LARGE_ALL_REDUCES = (
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


def _large_all_to_all(sender: Sender, seconds: int, loss: float = 0.0) -> Variant:
    """One that ends a second after its time, whatever is under way: one all-to-all is over."""
    if sender is MRC:
        transport, topology, carries = _MRC, _PLANES, 0.85
    else:
        transport = sender.transport | (NIC_TIMEOUT if loss else {})
        topology, carries = _LOSSLESS, 0.75
    variant = _collective("alltoall", sender.name, transport, topology, seconds, carries, loss)
    return replace(variant, changes={**variant.changes, "drain": DRAIN})


_LARGE_ALL_TO_ALLS = (
    _large_all_to_all(MRC, 3),
    _large_all_to_all(ROCE_1, 5),
    _large_all_to_all(ROCE_2, 5),
    _large_all_to_all(MRC, 6, LITTLE_LOSS),
    _large_all_to_all(ROCE_1, 12, LITTLE_LOSS),
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
        "16x64",
        _LARGE_ALL_REDUCES,
        _judge_all_reduce,
        partial(_draw_rates, kind="allreduce"),
        large=True,
    ),
    PaperFigure(
        "17x64",
        _LARGE_ALL_TO_ALLS,
        _judge_all_to_all,
        partial(_draw_rates, kind="alltoall"),
        large=True,
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
