"""Pictures of the protocol: sequence diagrams from traces, the EV states from their table."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from testbed.drawings.dialogue import REQUESTER, RTT_NS, Crossing, Fate, Trace
from testbed.mrc import EvChanged, EvState
from testbed.mrc.ev.ev import TRANSITIONS, EvAction
from testbed.results.report.figures import style

_EVS = (style.BLUE, style.SKY, style.VERMILLION, style.GREEN, style.ORANGE, style.PURPLE)
"""The colour of each EV; vermillion is `BAD_EV`."""

_IN_PER_RTT = 3.0
_LINE_RTT = 0.046
"""Height of a line of text."""

_SMALL, _FONT = 6.2, 7.0

_GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
"""Behind a text on a line."""

_PLACES = {
    EvState.GOOD: (0.0, 0.0),
    EvState.SKIP: (0.0, 2.9),
    EvState.ASSUMED_BAD: (6.4, 0.0),
    EvState.DENIED: (6.4, 2.9),
}
_HALF_WIDTH, _HALF_HEIGHT = 0.95, 0.34
_ALONG_DIAGONAL = 0.66
"""Position of the label on a diagonal; the diagonals cross at 0.5."""


def draw_sequence(trace: Trace, title: str, file: Path) -> None:
    """Draw a trace: time runs downwards, packets are arrows, the left edge has the EVs' changes.

    Raises:
        OSError: the file cannot be written.
    """
    last_rtt = max(crossing.arrives_ns for crossing in trace.crossings) / RTT_NS
    with style.style():
        figure = Figure(figsize=(7.6, 0.8 + _IN_PER_RTT * last_rtt), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xlim(-1.22, 1.68)
        axes.set_ylim(last_rtt + 0.03, -0.09)
        for place, name in ((0, "requester"), (1, "responder")):
            axes.plot([place, place], [-0.02, last_rtt], color=style.GREY, linewidth=1)
            axes.text(place, -0.045, name, ha="center", va="bottom", fontweight="bold")
        for crossing in trace.crossings:
            _draw_crossing(axes, crossing)
        _label(axes, trace.crossings)
        _note(axes, trace.changes)
        axes.set_ylabel("base RTTs")
        axes.set_xticks([])
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.set_title(title)
        style.write(figure, file, title)


def _draw_crossing(axes: Axes, crossing: Crossing) -> None:
    begin, end = (0.0, 1.0) if crossing.side == REQUESTER else (1.0, 0.0)
    sent, arrives = crossing.sent_ns / RTT_NS, crossing.arrives_ns / RTT_NS
    colour = _EVS[crossing.datagram.ev]
    width, line = (1.3, "-") if crossing.datagram.is_data else (0.7, "--")
    half_x, half_y = (begin + end) / 2, (sent + arrives) / 2
    if crossing.fate is not Fate.ARRIVES:
        axes.plot([begin, half_x], [sent, half_y], color=colour, linewidth=width, linestyle=line)
    if crossing.fate is Fate.LOST:
        axes.plot(half_x, half_y, marker="x", color=colour, markersize=6, markeredgewidth=1.8)
        return
    if crossing.fate is Fate.TRIMMED:
        axes.plot(half_x, half_y, marker="|", color=colour, markersize=9, markeredgewidth=2)
        begin, sent, width, line = half_x, half_y, 1.1, ":"
        font = {"color": colour, "fontsize": _SMALL, "bbox": _GROUND}
        axes.text(half_x + 0.03, half_y - 0.012, "trimmed", font, zorder=4)
    arrow = FancyArrowPatch(
        (begin, sent), (end, arrives), arrowstyle="-|>", mutation_scale=6, shrinkA=0, shrinkB=0
    )
    arrow.set(color=colour, linewidth=width, linestyle=line)
    axes.add_patch(arrow)


def _label(axes: Axes, crossings: Iterable[Crossing]) -> None:
    """Label each packet beside its sender, each on a line of its own."""
    free = [-1.0, -1.0]
    for crossing in sorted(crossings, key=lambda crossing: crossing.sent_ns):
        at = max(crossing.sent_ns / RTT_NS, free[crossing.side])
        free[crossing.side] = at + _LINE_RTT
        left = crossing.side == REQUESTER
        axes.text(
            -0.03 if left else 1.03,
            at,
            f"{crossing.text} · EV {crossing.datagram.ev}"
            if crossing.datagram.is_data
            else crossing.text,
            ha="right" if left else "left",
            va="center",
            fontsize=_FONT if crossing.datagram.is_data else _SMALL,
            color=_EVS[crossing.datagram.ev],
            fontweight="bold" if crossing.datagram.retransmitted else "normal",
        )


def _note(axes: Axes, changes: Iterable[EvChanged]) -> None:
    """Write at the left edge how EVs change."""
    free = -1.0
    for change in changes:
        at = max(change.time_ns / RTT_NS, free)
        free = at + 1.15 * _LINE_RTT
        if change.old is change.new:
            became = f"{'joins' if change.active else 'leaves'} the rotation"
        else:
            became = f"{change.old} → {change.new}"
        axes.text(
            -0.55,
            at,
            f"EV {change.ev} {became}\n({change.reason})",
            ha="right",
            va="center",
            fontsize=_SMALL,
            bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": style.GREY},
        )
        free += _LINE_RTT


# --- the EV states --------------------------------------------------------------------------------


def draw_states(file: Path) -> None:
    """Draw the states of an EV and the transitions of `mrc.ev.states.TRANSITIONS`.

    Raises:
        OSError: the file cannot be written.
    """
    with style.style():
        style.write(states_figure(), file, "States of an EV")


def arrows() -> dict[tuple[EvState, EvState], list[str]]:
    """Return the events that lead from one state to another, or change the role within one."""
    events = defaultdict[tuple[EvState, EvState], list[str]](list)
    for (state, event), (new, action) in TRANSITIONS.items():
        if new is not state or action is not EvAction.STAY:
            events[state, new].append(event.value)
    return dict(events)


def states_figure() -> Figure:
    """Return the figure of `draw_states`; call it within `style()`."""
    figure = Figure(figsize=(7.6, 3.55), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(-3.0, 7.6)
    axes.set_ylim(-1.0, 3.4)
    boxes = {}
    for state, (x, y) in _PLACES.items():
        boxes[state] = box = FancyBboxPatch(
            (x - _HALF_WIDTH, y - _HALF_HEIGHT),
            2 * _HALF_WIDTH,
            2 * _HALF_HEIGHT,
            boxstyle="round,pad=0.08",
            facecolor=style.GREEN if state is EvState.GOOD else "white",
            edgecolor=style.GREY,
        )
        axes.add_patch(box)
        colour = "white" if state is EvState.GOOD else "black"
        axes.text(x, y, state, ha="center", va="center", color=colour, fontweight="bold")
    events_by_arrow = arrows()
    for (old, new), events in events_by_arrow.items():
        both_ways = (new, old) in events_by_arrow
        _draw_transition(axes, boxes, old, new, events, both_ways=both_ways)
    axes.set_title("States of an EV and the events that lead from one to another")
    return figure


def _draw_transition(
    axes: Axes,
    boxes: dict[EvState, FancyBboxPatch],
    old: EvState,
    new: EvState,
    events: list[str],
    *,
    both_ways: bool,
) -> None:
    (x0, y0), (x1, y1) = _PLACES[old], _PLACES[new]
    text = "\n".join(events)
    if old is new:
        text = f"in and out of\nthe rotation:\n{text}"
        font = {"fontsize": _FONT, "color": style.GREY}
        axes.text(x0 - _HALF_WIDTH - 0.2, y0, text, font, ha="right", va="center")
        return
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    # Both ways between two states are side by side: each to the right of its own direction.
    right_x, right_y = (y1 - y0) / length, -(x1 - x0) / length
    dx, dy = (right_x * 0.22, right_y * 0.16) if both_ways else (0.0, 0.0)
    arrow = FancyArrowPatch(
        (x0 + dx, y0 + dy),
        (x1 + dx, y1 + dy),
        arrowstyle="-|>",
        mutation_scale=10,
        color=style.VERMILLION if new is not EvState.GOOD else style.GREEN,
        patchA=boxes[old],
        patchB=boxes[new],
        shrinkA=2,
        shrinkB=2,
    )
    axes.add_patch(arrow)
    vertical, level = x0 == x1, y0 == y1
    diagonal = not vertical and not level
    along = _ALONG_DIAGONAL if diagonal else 0.5
    label_x, label_y = x0 + along * (x1 - x0) + dx, y0 + along * (y1 - y0) + dy
    if vertical:
        label_x += right_x * 0.12
    elif level:
        label_y += right_y * 0.1
    elif both_ways:  # away from the other arrow, but still across its own
        label_x -= right_x * 0.7
    beside = vertical or (diagonal and both_ways)
    axes.text(
        label_x,
        label_y,
        text,
        ha=("left" if right_x > 0 else "right") if beside else "center",
        va=("bottom" if right_y > 0 else "top") if level else "center",
        fontsize=_FONT,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1} if diagonal else None,
    )
