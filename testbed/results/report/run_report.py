"""The report of a run as one HTML file that loads nothing from elsewhere."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

import testbed.model.summary
from testbed.model.summary import FaultSummary, FlowFault, LinkSummary, Summary
from testbed.model.summary.flows import slowest_flows
from testbed.model.summary.metric import NEVER
from testbed.model.summary.scopes import SCOPES, outcome
from testbed.model.summary.spread import shown_spreads, worth_showing
from testbed.model.summary.unit import RTT, US
from testbed.model.units import NS_PER_S, show_duration, show_share, show_size
from testbed.results.records import EV_EVENTS
from testbed.results.report.figures import Drawing
from testbed.results.report.html import DASH, MetricTables, Picture, number, template
from testbed.results.report.proof import proof_lines
from testbed.results.run_data import RunData

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
        plain_reason=_plain_reason,
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
        pictures=[Picture.of(drawing, data.figures) for drawing in drawings],
        flows=flows,
        most_flows=MAX_FLOWS,
        worst_flows=_worst_flows,
        evs=evs[:MAX_EVS],
        most_evs=MAX_EVS,
        ev_count=sum(len(flow.evs) for flow in summary.flows),
        events=events[:MAX_EV_EVENTS],
        event_count=len(events),
        manifest=data.manifest.as_record(),
        topology=data.topology,
    )


def _worst_flows(fault: FaultSummary) -> Sequence[FlowFault]:
    """The flows of a fault to show: all, in their order, or the affected ones first."""
    if len(fault.flows) <= MAX_FLOWS:
        return fault.flows
    return sorted(fault.flows, key=lambda flow: not flow.affected)[:MAX_FLOWS]


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


def _plain_reason(reason: str) -> str:
    return _REASONS.get(reason, reason)


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
    never = fault.over_flows.get("recovery_rtt")
    if fault.recovery is None:
        back = "recovery was not measured"
    elif fault.recovery.rtt == NEVER:
        back = "goodput did not come back"
        if never:
            back += f" in {never.never} of {never.flows} flows"
    elif fault.recovery.ms == 0:
        back = "goodput never fell below 95%"
    else:
        back = f"goodput was back after {RTT.show(fault.recovery.rtt)}"
    return (
        f"{whole} When {fault.target} failed ({fault.kind}), {detected}; {back}; "
        f"{number(fault.packets_lost)} packets were lost to it."
    )


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
