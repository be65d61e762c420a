"""Draw the pictures of docs/protocol.md: a loss, a trim, a dead path, the states of an EV.

    python scripts/protocol_pictures.py [DIRECTORY]     by default docs/images

Each sequence is a trace of two queue pairs of the protocol core in virtual time. The network
between them is minimal: a constant delay, a data packet every few milliseconds, and one fault.
Times are emulated ns at the default dilation.
"""

import testbed.results.plotting  # noqa: F401 - before Matplotlib

# isort: split
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from testbed import mrc
from testbed.mrc import EvChanged, EvState
from testbed.mrc.constants import ECT0, DscpClasses, EndpointOp, EvMark, NackReason
from testbed.mrc.entropy import TRANSITIONS, EvAction
from testbed.mrc.wire.control import Ack, EndpointResponse, Nack, ReliabilityProbe, Sack
from testbed.mrc.wire.kinds import Write, kept_bytes, unwrap_psn
from testbed.results.report.figures import style

IMAGES = Path(__file__).parents[1] / "docs" / "images"

# --- the traces -------------------------------------------------------------------------------

RTT_NS = 130_800_000
PACE_NS = RTT_NS // 16
"""From one data packet to the next: slow enough that each has a line of its own."""

PLANES = 2
REQUESTER, RESPONDER = 0, 1
BAD_EV = 2
"""The EV whose packets are lost or trimmed: plane 0, its second path."""

_MTU = 64
_RKEY = 7
_DSCP = DscpClasses()
_ADDRESSES = b"q" * 16, b"r" * 16


class Fate(Enum):
    """What becomes of a packet on its way."""

    ARRIVES = "arrives"
    LOST = "lost"
    TRIMMED = "trimmed"


FateOf = Callable[[mrc.Datagram, int], Fate]
"""Decides the fate of a packet that is sent at a time in ns."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A packet from one side to the other; it is lost or trimmed half way."""

    side: int
    sent_ns: int
    arrives_ns: int
    datagram: mrc.Datagram
    text: str
    fate: Fate


@dataclass(frozen=True, slots=True)
class Trace:
    """The packets of both sides, and the changes of the requester's EVs."""

    crossings: tuple[Crossing, ...]
    changes: tuple[mrc.EvChanged, ...]


def ev_profile() -> mrc.EvProfile:
    """Return two planes of two active EVs and a backup each."""
    entries = tuple(
        mrc.EvEntry(index * PLANES + plane, plane, (plane, index), index < 2)  # noqa: PLR2004 - two
        for index in range(3)
        for plane in range(PLANES)
    )
    return mrc.EvProfile(entries)


def converse(fate_of: FateOf, *, packets: int, until_rtt: float) -> Trace:
    """Send one WRITE and record what both sides send.

    Args:
        fate_of: what becomes of each packet.
        packets: the length of the WRITE.
        until_rtt: when the trace ends, in base RTTs.
    """
    return _Dialogue(fate_of, packets).run(round(until_rtt * RTT_NS))


class _Dialogue:
    def __init__(self, fate_of: FateOf, packets: int) -> None:
        self._fate_of = fate_of
        self._ties = count()
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._qps = tuple(self._open(side, packets * _MTU) for side in (REQUESTER, RESPONDER))
        self._demuxes = tuple(mrc.Demux(address, _DSCP) for address in _ADDRESSES)
        for demux, qp in zip(self._demuxes, self._qps, strict=True):
            demux.add(qp)
        self._crossings: list[Crossing] = []
        self._changes: list[mrc.EvChanged] = []
        self._turn_ns = [0, 0]
        self._qps[REQUESTER].post_write(0, memoryview(bytes(packets * _MTU)), 0, _RKEY)

    @staticmethod
    def _open(side: int, size: int) -> mrc.QueuePair:
        memory = mrc.MemoryTable()
        memory.register(mrc.MemoryRegion(_RKEY, 0, memoryview(bytearray(size))))
        config = mrc.QpConfig(
            qpn=16 + side,
            peer_qpn=17 - side,
            local_address=_ADDRESSES[side],
            peer_address=_ADDRESSES[1 - side],
            ev_profile=ev_profile(),
            base_rtt_ns=RTT_NS,
            cwnd=64 * _MTU,
            mtu=_MTU,
            sack_bytes=4 * 1024,
        )
        return mrc.QueuePair(config, memory)

    def run(self, until_ns: int) -> Trace:
        now_ns = 0
        while now_ns <= until_ns:
            for side, qp in enumerate(self._qps):
                self._send(side, qp, now_ns)
            times = [self._agenda[0][0]] if self._agenda else []
            for turn_ns, qp in zip(self._turn_ns, self._qps, strict=True):
                deadline_ns = qp.next_deadline()
                if deadline_ns is not None:
                    times.append(max(deadline_ns, turn_ns))
            if not times:
                break
            now_ns = max(now_ns, min(times))
            while self._agenda and self._agenda[0][0] <= now_ns:
                heappop(self._agenda)[2]()
        return Trace(tuple(self._crossings), tuple(self._changes))

    def _send(self, side: int, qp: mrc.QueuePair, now_ns: int) -> None:
        """Send what is due; after a data packet the side waits for `PACE_NS`."""
        while now_ns >= self._turn_ns[side]:
            datagrams = qp.transmit(now_ns, 1)
            events = qp.events()
            if side == REQUESTER:
                self._changes += [event for event in events if isinstance(event, mrc.EvChanged)]
            if not datagrams:
                return
            for datagram in datagrams:
                self._launch(side, datagram, now_ns)
            if any(datagram.is_data for datagram in datagrams):
                self._turn_ns[side] = now_ns + PACE_NS

    def _launch(self, side: int, datagram: mrc.Datagram, now_ns: int) -> None:
        fate = self._fate_of(datagram, now_ns)
        data = datagram.join()
        text = _summary(mrc.decode(data))
        arrives_ns = now_ns + RTT_NS // 2
        self._crossings.append(Crossing(side, now_ns, arrives_ns, datagram, text, fate))
        trimmed = fate is Fate.TRIMMED
        arrival = mrc.Arrival(ECT0, _DSCP.trimmed if trimmed else datagram.dscp, arrives_ns)
        if fate is not Fate.LOST:
            rest = data[: kept_bytes(data)] if trimmed else data
            arrive: Callable[[], None] = partial(self._arrive, 1 - side, rest, arrival)
            heappush(self._agenda, (arrives_ns, next(self._ties), arrive))

    def _arrive(self, side: int, data: bytes, arrival: mrc.Arrival) -> None:
        answer = self._demuxes[side].receive(data, arrival)
        if answer is not None:
            self._launch(side, answer.datagram, arrival.rx_ns)


def _summary(packet: mrc.Packet) -> str:
    """Return a packet in few words."""
    match packet:
        case Write():
            text = f"WRITE {packet.psn}" + (", rtx" if packet.retransmitted else "")
        case Sack():
            text = _sack_summary(packet)
        case Nack():
            text = f"NACK {packet.nack_psn} {NackReason(packet.reason).name}"
        case Ack():
            text = f"ACK {packet.psn}"
        case ReliabilityProbe():
            text = f"probe EV {packet.ev}"
        case mrc.EndpointRequest(op=EndpointOp.EV_PROBE):
            text = f"EV probe {packet.ev}"
        case EndpointResponse(op=EndpointOp.EV_PROBE):
            text = f"EV {packet.ev} answers"
        case _:
            text = type(packet).__name__
    return text


def _sack_summary(sack: Sack) -> str:
    cack = unwrap_psn(sack.cack_psn, 0)
    first = cack + sack.sack_offset
    above = [first + bit for bit in range(64) if sack.bitmap >> bit & 1]
    words = [f"cack {cack}"] if cack >= 0 else ["nothing in order"]
    if above:
        words.append(f"and {_ranges(above)}")
    if sack.mark is EvMark.SKIP_ONCE:
        words.append(f"skip EV {sack.reflected_ev}")
    return ("probe reply: " if sack.probe_reply else "SACK ") + ", ".join(words)


def _ranges(numbers: list[int]) -> str:
    """Write runs of consecutive numbers as ranges."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return " ".join(str(start) if start == end else f"{start}-{end}" for start, end in pairs)


# --- the traces of docs/protocol.md --------------------------------------------------------------


def loss() -> Trace:
    """Return a trace in which one data packet is lost, whole."""
    return converse(_third_packet(Fate.LOST), packets=20, until_rtt=2.0)


def trim() -> Trace:
    """Return a trace in which a switch trims one data packet."""
    return converse(_third_packet(Fate.TRIMMED), packets=20, until_rtt=2.0)


def path_death() -> Trace:
    """Return a trace in which a path dies, and is back two RTTs later."""

    def decide_fate(datagram: mrc.Datagram, now_ns: int) -> Fate:
        dead = datagram.ev == BAD_EV and now_ns < 2 * RTT_NS
        return Fate.LOST if dead else Fate.ARRIVES

    return converse(decide_fate, packets=30, until_rtt=6.1)


def _third_packet(fate: Fate) -> FateOf:
    """Give the first transmission of the third data packet this fate; all others arrive."""

    def decide_fate(datagram: mrc.Datagram, _now_ns: int) -> Fate:
        hit = datagram.seq == 2 and not datagram.retransmitted  # noqa: PLR2004 - counted from 0
        return fate if hit else Fate.ARRIVES

    return decide_fate


# --- the pictures -----------------------------------------------------------------------------

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


def draw_all(directory: Path) -> None:
    """Draw all of them.

    Raises:
        OSError: a file cannot be written.
    """
    for name, trace, title in (
        ("loss", loss, "A packet is lost: its EV is taken out, a backup takes over"),
        ("trim", trim, "A packet is trimmed: it is sent again, its EV is skipped once"),
        ("path-death", path_death, "A path is dead for two RTTs"),
    ):
        draw_sequence(trace(), title, directory / f"protocol-{name}.png")
    draw_states(directory / "protocol-ev-states.png")


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]) if sys.argv[1:] else IMAGES)
