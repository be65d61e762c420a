"""The report of a run as one HTML file that loads nothing from elsewhere."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import polars as pl

import testbed.model.summary
from testbed.model.fabric.names import directions_of, link_of
from testbed.model.faults.impairment import in_words
from testbed.model.summary import FaultSummary, FlowFault, LinkSummary, PairFault, Summary
from testbed.model.summary.flows import slowest_flows
from testbed.model.summary.metric import shown_spreads, worth_showing
from testbed.model.summary.scopes import SCOPES, outcome
from testbed.model.summary.unit import NEVER, RTT, US
from testbed.model.units import NS_PER_S, show_duration, show_share, show_size
from testbed.results.records import ALGORITHM, EV_EVENTS
from testbed.results.report.figures import Drawing
from testbed.results.report.html import DASH, MetricTables, Picture, number, template
from testbed.results.run_data import RunData

# --------------------------------------------------------------------------------------------------
# The proof of a fault in words: what was read back, and what the packets did meanwhile.


_WHEN = {
    "injected": "when it took effect",
    "until_end": "until it healed",
    "healed": "after healing",
}
"""The parts of a proof, by their keys."""

_COUNTS = {
    "passed": "packets got through",
    "dropped": "packets dropped",
    "lost": "of them at random",
    "corrupted": "packets corrupted",
    "dropped_by_flows": "packets dropped by OpenFlow rules",
    "forwarded": "packets forwarded by Open vSwitch",
}
"""What the counters of a link direction count."""


def proof_lines(
    proof: Mapping[str, Any], t0_ns: int, moment: Callable[[float], str], places: Sequence[str] = ()
) -> list[str]:
    """A proof as lines: `until it healed: packets dropped: 56 h0>p0_t0_0, 31 p0_t0_0>h0`.

    Args:
        proof: of a fault's record. Keys that end in `_ns` are CLOCK_MONOTONIC.
        t0_ns: the start of the run.
        moment: how a time of the run in seconds is written.
        places: the directions that the fault affected.
    """
    lines = []
    for key, value in proof.items():
        if isinstance(value, Mapping):
            what = "; ".join(_facts(value, t0_ns, moment, places))
            lines.append(f"{_WHEN.get(key, _words(key))}: {what}")
        elif ">" in key and isinstance(value, int):  # a direction, in a simulated run
            lines.append(f"{key}: {number(value)} packets dropped or corrupted")
        else:
            lines += _facts({key: value}, t0_ns, moment, places)
    return lines


def _facts(
    facts: Mapping[str, Any], t0_ns: int, moment: Callable[[float], str], places: Sequence[str]
) -> Iterator[str]:
    for key, value in facts.items():
        counts = value if isinstance(value, list) else [value]
        if key in _COUNTS and key != "passed" and not any(counts):
            continue
        if key == "read_back":
            yield f"the link model: {', '.join(in_words(value)) or 'no fault'}"
        elif isinstance(value, Mapping):
            yield from (f"{_words(key)} {fact}" for fact in _facts(value, t0_ns, moment, places))
        elif key.endswith("_ns") and isinstance(value, int):
            at = moment((value - t0_ns) / NS_PER_S)
            yield f"{_words(key.removesuffix('_ns'))} at {at}"
        elif key.endswith("_ns") and isinstance(value, list):
            times = [moment((ns - t0_ns) / NS_PER_S) for ns in value if ns is not None]
            yield f"{_words(key.removesuffix('_ns'))} at {_several(times)}"
        elif key in _COUNTS:
            yield _count(value, _COUNTS[key], places)
        elif key == "carrier":
            ends = "both ends" if isinstance(value, bool) else "the two ends"
            yield f"carrier {_several(value, yes='on', no='off')} at {ends}"
        else:
            yield f"{_words(key)}: {_several(value)}"


def _count(value: object, what: str, places: Sequence[str]) -> str:
    """A count of a whole fault, or of each direction if they are those of one link."""
    if not isinstance(value, list):
        return f"{_several(value)} {what}"
    one_link = bool(places) and tuple(places) == directions_of(link_of(places[0]))
    if not one_link or len(value) != len(places):
        return f"{number(sum(value))} {what}"
    counts = ", ".join(
        f"{number(count)} {place}" for count, place in zip(value, places, strict=True)
    )
    return f"{what}: {counts}"


def _several(value: object, yes: str = "yes", no: str = "no") -> str:
    """One value, or several joined by `and`."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " and ".join(_several(each, yes, no) for each in value)
    if isinstance(value, bool):
        return yes if value else no
    return number(value) if isinstance(value, int) else str(value)


def _words(key: str) -> str:
    return key.replace("_", " ")


MAX_EV_EVENTS = 2000
"""Rows of the EV event table; the Parquet file has them all."""

MAX_LINKS = 8
"""Rows of the table of links, beside those with a fault."""

MAX_FLOWS = 500
"""Rows of tables with one for each flow: of more, the slowest ones."""

MAX_EVS = 2000
"""Rows of the table with one for each EV of these flows."""

_ALL = 0.9995
"""From this share on, `100% or more` is shown as all."""


def _figure(value: float | None) -> str:
    if value is None:
        return DASH
    return "never" if value == NEVER else f"{value:.4g}"


def render(data: RunData, summary: Summary, drawings: Sequence[Drawing]) -> str:
    """The report as HTML. Whatever the run recorded is escaped."""
    events = _ev_events(data)
    flows = slowest_flows(summary.flows, MAX_FLOWS)
    evs = [(flow, ev) for flow in flows for ev in flow.evs]
    moment = partial(show_moment, base_rtt_s=data.base_rtt_s)
    page = template(
        "report.html.j2",
        number=number,
        size=show_size,
        moment=moment,
        duration=lambda seconds: show_duration(seconds * NS_PER_S),
        percent=show_share,
        figure=_figure,
        proof=partial(proof_lines, t0_ns=data.run.t0_ns, moment=moment),
        plain_reason=lambda reason: _REASONS.get(reason, reason),
        sentence=lambda text: text[:1].upper() + text[1:],
        pretty=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    )
    return page.render(
        summary=summary,
        headline=_headline(summary),
        links=busiest_links(summary.links),
        tables=MetricTables(summary.dilation),
        groups=testbed.model.summary,
        scopes=SCOPES,
        outcome=outcome,
        shown_spreads=shown_spreads,
        worth_showing=worth_showing,
        pictures=[Picture.of(drawing, data.figures) for drawing in _failure_first(drawings)],
        flows=flows,
        most_flows=MAX_FLOWS,
        worst_flows=_worst_flows,
        evs=evs[:MAX_EVS],
        most_evs=MAX_EVS,
        own_records=_own_records(data),
        ev_count=sum(len(flow.evs) for flow in summary.flows),
        events=events[:MAX_EV_EVENTS],
        event_count=len(events),
        manifest=data.manifest.as_record(),
        topology=data.topology,
    )


def _own_records(data: RunData) -> list[dict[str, Any]]:
    """What the user's own classes have recorded: a row for each name."""
    value, is_count = pl.col("value"), pl.col("kind") == "count"
    return (
        data.tables[ALGORITHM]
        .group_by("key", "kind", "name", "flow")
        .agg(
            pl.when(is_count.first()).then(value.last()).otherwise(pl.len()).alias("total"),
            pl.col("t").first().alias("first"),
            pl.col("t").last().alias("last"),
        )
        .group_by("key", "kind", "name")
        .agg(pl.len().alias("flows"), pl.col("total").sum(), pl.min("first"), pl.max("last"))
        .sort("key", "kind", "name")
        .to_dicts()
    )


def _failure_first(drawings: Sequence[Drawing]) -> Sequence[Drawing]:
    """The drawings in their order, but first of all a fault packet by packet, if there is one."""
    failure = next((drawing for drawing in drawings if drawing.stem.startswith("failover")), None)
    return sorted(drawings, key=lambda drawing: drawing is not failure)


_Effect = TypeVar("_Effect", FlowFault, PairFault)


def _worst_flows(effects: Sequence[_Effect]) -> Sequence[_Effect]:
    """The flows or pairs of a fault to show: all, in their order, or the affected ones first."""
    if len(effects) <= MAX_FLOWS:
        return effects
    return sorted(effects, key=lambda effect: not effect.affected)[:MAX_FLOWS]


def busiest_links(links: Sequence[LinkSummary]) -> list[LinkSummary]:
    """The directions to show: the most congested ones of switches, and all with a fault."""
    switched = [link for link in links if not link.direction.startswith("h")]
    congested = sorted(switched, key=lambda link: link.congestion, reverse=True)[:MAX_LINKS]
    return [link for link in links if link in congested or link.faulty]


def show_moment(time_s: float | None, base_rtt_s: float) -> str:
    """A time of the run in seconds, fine enough to tell moments a hundredth of an RTT apart."""
    digits = max(-math.floor(math.log10(base_rtt_s / 100)), 1)
    return DASH if time_s is None else f"{number(time_s, digits)} s"


_REASONS = {
    "late": "a packet was lost: it was not acknowledged in time",
    "overtaken": "a packet was lost: later ones on the same path arrived",
    "silent EV": "a packet was lost: its EV delivers nothing",
    "substitute": "takes the place of an EV that left",
    "owner returned": "gives its place back to the EV that returned",
    "probes answered": "its probes were answered",
    "probe unanswered": "its probe was not answered",
    "condemnation withheld": "a packet was lost, but too few EVs would be left",
    "spurious loss": "the packets had arrived after all",
    "port down": "its port has no carrier",
    "denied": "denied by an operator or the Clustermapper",
    "allowed": "no longer denied",
    "allowed without probes": "no longer denied",
}
"""Reasons of EV events, in words."""


def _headline(summary: Summary) -> str:
    busy = [flow for flow in summary.flows if not flow.idle]
    fraction = min((flow.reached for flow in busy), default=0.0)
    least = f"{show_share(fraction)} or more" if fraction < _ALL else "all"
    which = "every flow" if len(busy) == len(summary.flows) else "every flow with something to send"
    whole = f"Over the whole run {which} had {least} of what the fabric allowed."
    affecting = [fault for fault in summary.faults if fault.flows_affected]
    if not summary.faults:
        return f"{whole} No fault was injected."
    if not any(fault.flows for fault in summary.faults):
        return f"{whole} No fault took effect in the measured time."
    if not affecting:
        return f"{whole} No flow had an active EV through a link that failed."
    fault = max(affecting, key=lambda fault: fault.stall.ms if fault.stall else 0)
    if fault.detection is None:
        detected = "no flow lost packets to it"
    elif fault.detection.rtt == NEVER:
        lossy, noticed = fault.flows_lossy, fault.flows_noticed
        detected = f"{lossy - noticed} of {lossy} flows that lost packets did not detect it"
    else:
        detected = (
            "every flow that detected it took a path out of service within "
            f"{RTT.show(fault.detection.rtt)} ({US.show(fault.detection.real_us)} at full speed)"
        )
    return (
        f"{whole} When {fault.target} failed ({fault.kind}), {detected}; {_back(fault)}; "
        f"{number(fault.packets_lost)} packets were lost to it."
    )


def _back(fault: FaultSummary) -> str:
    """When goodput was back at its level, and what that is."""
    never = fault.over_pairs.get("recovery_rtt")
    if fault.recovery is None:
        back = "recovery was not measured"
    elif fault.recovery.rtt == NEVER:
        back = "goodput did not come back"
        if never:
            back += f" between {never.never} of {never.count} pairs of hosts"
    elif fault.recovery.ms == 0:
        back = "goodput never fell below 95% of its level"
    else:
        back = f"goodput was back at its level after {RTT.show(fault.recovery.rtt)}"
    level = "" if fault.level is None else f", {show_share(fault.level)} of what the fabric allowed"
    return back + level


def _ev_events(data: RunData) -> list[Mapping[str, Any]]:
    """Every change of an EV but the start, in order of time, with its flow and path named."""
    flows = {flow.flow: flow for flow in data.run.flows}
    events = data.tables[EV_EVENTS].filter(pl.col("old") != "")
    return [
        {
            **event,
            "flow": flows[event["flow"]].name,
            "path": data.path_of(flows[event["flow"]], event["ev"]).name,
        }
        for event in events.iter_rows(named=True)
    ]
