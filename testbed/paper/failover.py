"""The same dead link under every transport: how long nothing comes, and how much is missing."""

from matplotlib.figure import Figure

from testbed.paper.figure import Check, PaperFigure, Runs, Variant, at_least
from testbed.paper.runs import Run
from testbed.results.figures import style

_MRC = {"kind": "mrc", "backups": 0.25}
_ROCE = {"topology": "clos-1plane-roce"}

KINDS = {
    "MRC": Variant("dead-link-mrc", "dead-link", {"transport": _MRC}),
    "blind spraying": Variant("dead-link-blind", "dead-link", {"transport": {"spray": "blind"}}),
    "go-back-N under spraying": Variant(
        "dead-link-go-back", "dead-link", {"transport": _MRC | {"repair": "go-back"}}
    ),
    "RoCE, routing converges in 50 us": Variant(
        "dead-link-roce-50us",
        "dead-link",
        _ROCE | {"transport": {"kind": "roce", "convergence": "50 us"}},
    ),
    "RoCE, no convergence": Variant(
        "dead-link-roce", "dead-link", _ROCE | {"transport": {"kind": "roce"}}
    ),
}


def _stall(run: Run) -> float:
    """The longest that a flow delivered nothing in order, in base RTTs."""
    (fault,) = run.summary.faults
    return fault.stall_rtt or 0.0


def _deficit(run: Run) -> float:
    """What the worst flow delivered less than the links allowed, in base RTTs of its rate."""
    (fault,) = run.summary.faults
    return fault.deficit_rtt or 0.0


def _measure(runs: Runs) -> tuple[Check, ...]:
    mrc = runs[KINDS["MRC"].name]
    checks = []
    for label, variant in list(KINDS.items())[1:]:
        other = runs[variant.name]
        checks.append(
            at_least(f"deficit over MRC's: {label}", _deficit(other) / _deficit(mrc), 1.0, "{:.1f}")
        )
        if label.startswith("RoCE"):
            checks.append(
                at_least(f"stall over MRC's: {label}", _stall(other) / _stall(mrc), 1.0, "{:.1f}")
            )
    return tuple(checks)


def _draw(runs: Runs) -> Figure:
    figure = style.new_figure(2.4)
    panels = figure.subplots(1, 2, sharey=True)
    labels = list(KINDS)[::-1]
    for axes, name, value in zip(panels, ("stall", "deficit"), (_stall, _deficit), strict=True):
        values = [value(runs[KINDS[label].name]) for label in labels]
        bars = axes.barh(labels, values, color=[_colour(label) for label in labels], height=0.6)
        axes.bar_label(bars, fmt="%.2g", padding=2, fontsize=7)
        axes.set_xlabel(f"{name} (base RTTs)")
        axes.set_xlim(0, 1.15 * max(values))
        axes.spines["top"].set_visible(False)
    return figure


def _colour(label: str) -> str:
    return style.BLUE if label == "MRC" else style.GREY


FAILOVER = PaperFigure(
    number="failover",
    title="One dead link under every transport",
    saw="not in the paper as a figure: MRC bypasses a dead path in a few tens of microseconds",
    ours="One pair at full rate; a T0-T1 link drops everything silently for 3 s, 0.3 ms at full "
    "speed. MRC on four planes, RoCE on one of the same rate, where the QP's only path is the "
    "dead one. Routing converges after 50 us or not within the fault: protocols take 50 ms and "
    "more, in which RoCE's retries are used up.",
    variants=tuple(KINDS.values()),
    measure=_measure,
    draw=_draw,
    caption="Left: the longest that the worst flow delivered nothing in order. Right: what it "
    "delivered less than the links in service allowed, in base RTTs of its rate.",
)
