"""A run in a terminal: flows, paths, faults, the last events."""

from collections.abc import Iterator

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.live.stream.records import (
    Detection,
    EvChange,
    FaultChange,
    OperatorCommand,
    RunEnd,
    RunState,
    Snapshot,
    SuspectChange,
    VerdictChange,
)
from testbed.model.units import NS_PER_S, show_duration, show_rate, show_share, show_size

MOST_EVS = 32
MOST_FLOWS = 8
SHOWN_EVENTS = 10


def shown(run_state: RunState) -> RenderableType:
    snapshot = run_state.snapshot
    if snapshot is None:
        return Text("the run has not begun")
    title = (
        f"{snapshot.scenario}  {run_state.t:.1f} of {max(snapshot.duration_s, run_state.t):.1f} s"
    )
    kind = "simulated" if snapshot.simulated else "emulated"
    verdict = run_state.verdict.verdict if run_state.verdict is not None else "trusted"
    state = run_state.outcome or (f"{verdict} so far" if snapshot.judged else "not judged")
    return Group(
        Text(f"{title}  {kind}  {state}", style="bold"),
        Columns([_flows(run_state, snapshot), _faults(run_state)]),
        _events(run_state),
        _evs(run_state, snapshot),
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def _flows(run_state: RunState, snapshot: Snapshot) -> Table:
    table = _table("Flows", "flow", "goodput", "cwnd", "in flight", "lost")
    flows = [flow for flow in snapshot.flows if flow.flow not in run_state.ended]
    for flow in flows[:MOST_FLOWS]:
        state = run_state.flows.get(flow.flow)
        if state is not None:
            table.add_row(
                f"{flow.name} ({flow.job})" if flow.job else flow.name,
                show_rate(state.goodput_bps or 0),
                show_size(state.cwnd_bytes or 0),
                show_size(state.inflight_bytes or 0),
                str(state.lost or 0),
            )
    if (more := len(flows) - MOST_FLOWS) > 0:
        table.add_row(f"and {more} more")
    return table


def _faults(run_state: RunState) -> Table:
    table = _table("Faults in force", "fault", "kind", "target", "detected after")
    for fault in run_state.in_force:
        after = [d.after_s for d in run_state.detections if d.fault == fault.fault]
        first = show_duration(round(min(after) * NS_PER_S)) if after else "not yet"
        table.add_row(str(fault.fault), fault.kind, fault.target, first)
    return table


def _evs(run_state: RunState, snapshot: Snapshot) -> Table:
    """The EVs of all flows that are not as they should be, and some that are."""
    table = _table("Paths", "flow", "EV", "path", "state", "goodput", "lost", "RTT")
    rows = sorted(
        (ev for ev in snapshot.evs if ev.flow not in run_state.ended),
        key=lambda ev: (run_state.roles[f"{ev.flow}:{ev.ev}"][1] == "GOOD", ev.flow),
    )
    for ev in rows[:MOST_EVS]:
        key = f"{ev.flow}:{ev.ev}"
        active, state = run_state.roles[key]
        measured = run_state.evs.get(key)
        goodput, lost = (measured.goodput_bps, measured.lost) if measured else (0.0, 0)
        rtt = show_duration(round(measured.rtt_s * NS_PER_S)) if measured and measured.rtt_s else ""
        role = state if state != "GOOD" else "active" if active else "backup"
        look = "red" if state == "ASSUMED_BAD" else "dim" if not active else ""
        name = snapshot.flows[ev.flow].name
        address = f"{ev.ev:#010x}"
        cells = (name, address, ev.path, role, show_rate(goodput or 0), str(lost or 0), rtt)
        table.add_row(*cells, style=look)
    if (more := len(rows) - MOST_EVS) > 0:
        table.add_row(f"and {more} more")
    return table


def _events(run_state: RunState) -> Table:
    """The last events, the newest first."""
    table = _table("Events", "")
    table.show_header = False
    lines = [line for event in run_state.events for line in _in_words(run_state, event)]
    for line in reversed(lines[-SHOWN_EVENTS:]):
        table.add_row(line)
    return table


def _in_words(run_state: RunState, event: object) -> Iterator[str]:
    flows = run_state.snapshot.flows if run_state.snapshot is not None else ()
    match event:
        case EvChange():
            role = "in" if event.active else "not in"
            name = flows[event.flow].name
            yield (
                f"{event.t:8.3f} s  EV {event.ev:#010x} of {name} is {event.new}, "
                f"{role} the active set: {event.reason}"
            )
        case FaultChange():
            yield f"{event.t:8.3f} s  {event.kind} of {event.target} {event.phase}"
        case Detection():
            after = show_duration(round(event.after_s * NS_PER_S))
            name = flows[event.flow].name
            yield f"{event.t:8.3f} s  {name} detected fault {event.fault} after {after}"
        case SuspectChange():
            what = "accuses" if event.raised else "no longer accuses"
            yield (
                f"{event.t:8.3f} s  the Clustermapper {what} {event.suspect} "
                f"(loss {show_share(event.loss)})"
            )
        case OperatorCommand():
            what = f"port {event.plane} of {event.host}"
            if event.flow is not None and event.ev is not None:
                what = f"EV {event.ev:#06x} of {flows[event.flow].name}"
            yield f"{event.t:8.3f} s  {event.by}: {event.kind} {what}: {event.result}"
        case VerdictChange():
            yield f"{event.t:8.3f} s  {event.verdict}: {'; '.join(event.reasons) or 'no objection'}"
        case RunEnd():
            yield f"{event.t:8.3f} s  end of the run: {event.outcome}"
