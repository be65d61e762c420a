"""One HTML file that tells the whole run: nothing is loaded from anywhere else."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined

from testbed.model.units import NS_PER_S
from testbed.results.report.figures import Drawing
from testbed.results.run_data import RunData
from testbed.results.summary import FaultMetrics, LinkSummary, Summary

DASH = "\N{EN DASH}"

MAX_EV_EVENTS = 2000
"""Rows of the EV event table; the Parquet file has them all."""

MAX_LINKS = 8
"""Rows of the table of links, beside those with a fault."""

_METRICS = (
    ("detection", "Detection, first EV", "fault took effect → the first EV through it is out"),
    ("detection_last", "Detection, last EV", "... → the last EV through it is out"),
    ("exposure", "Exposure", "... → the last data packet is sent into it"),
    ("stall", "Stall", "longest wait of the in-order delivered point"),
    ("placement_gap", "Longest gap in placement", "longest time without a newly placed byte"),
    (
        "recovery",
        "Recovery",
        "... → goodput, averaged over 200 packets, back at 95% of what the surviving links allow",
    ),
    ("return_first", "Return, first EV", "healed → the first EV is GOOD again"),
    ("return_last", "Return, last EV", "healed → the last EV is GOOD again"),
    ("return_data", "Return of data", "healed → data crosses the link again"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A metric, given three ways; a dash where there is none."""

    name: str
    meaning: str
    ms: str
    rtt: str
    real_us: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure, inlined."""

    title: str
    caption: str
    source: str


def render(data: RunData, summary: Summary, drawings: Sequence[Drawing]) -> str:
    """The report as HTML. Whatever the run recorded is escaped."""
    environment = Environment(
        loader=PackageLoader("testbed.results.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "rate": rate,
        "bytes": size,
        "number": number,
        "share": share,
        "figure": lambda value: DASH if value is None else f"{value:.4g}",
        "facts": partial(facts, t0_ns=data.run.t0_ns),
        "pretty": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    events = _ev_events(data)
    return environment.get_template("report.html.j2").render(
        summary=summary,
        headline=_headline(summary),
        rows=rows,
        links=busiest_links(summary.links),
        pictures=[_picture(data, drawing) for drawing in drawings],
        events=events[:MAX_EV_EVENTS],
        event_count=len(events),
        manifest=data.manifest,
        topology=data.topology,
    )


def busiest_links(links: Sequence[LinkSummary]) -> list[LinkSummary]:
    """The directions that the report shows: the most crowded at switches, and all with a fault."""
    switched = [one for one in links if not one.direction.startswith("h")]
    crowded = sorted(switched, key=lambda one: one.crowded, reverse=True)[:MAX_LINKS]
    return [one for one in links if one in crowded or one.faulty]


def rows(metrics: FaultMetrics) -> list[Row]:
    """The times of a fault as the table shows them."""
    return [
        Row(
            name,
            meaning,
            number(getattr(metrics, f"{key}_ms"), 1),
            number(getattr(metrics, f"{key}_rtt"), 2),
            number(getattr(metrics, f"{key}_real_us"), 2),
        )
        for key, name, meaning in _METRICS
    ]


def number(value: float | None, digits: int = 0) -> str:
    """A number with thin spaces between thousands; a dash for None."""
    return DASH if value is None else f"{value:,.{digits}f}".replace(",", "\u2009")


def share(value: float | None) -> str:
    """A share in percent, three figures; a dash for None."""
    return DASH if value is None else f"{value * 100:.3g}%"


def rate(bits_per_second: float) -> str:
    """A rate in Gbit/s or Mbit/s, three or four figures."""
    if bits_per_second >= 1e9:  # noqa: PLR2004 - one Gbit/s
        return f"{bits_per_second / 1e9:.1f} Gbit/s"
    return f"{bits_per_second / 1e6:.2f} Mbit/s"


def size(count: int) -> str:
    """A size in MiB, or in bytes where it is small."""
    mebibyte = 1 << 20
    return f"{count / mebibyte:,.1f} MiB" if count >= mebibyte else f"{count} B"


def facts(value: Mapping[str, Any], t0_ns: int, path: str = "") -> list[str]:
    """Nested values as lines: `until end dropped: 56, 31`.

    Keys that end in `_ns` are CLOCK_MONOTONIC: they are given in seconds of the run.
    """
    lines = []
    for key, inner in value.items():
        name = f"{path} {key}".strip().replace("_", " ")
        if isinstance(inner, Mapping):
            lines += facts(inner, t0_ns, name)
        elif key.endswith("_ns") and isinstance(inner, int):
            lines.append(f"{name.removesuffix(' ns')}: at {(inner - t0_ns) / NS_PER_S:.4f} s")
        elif isinstance(inner, list):
            lines.append(f"{name}: {', '.join(map(_plain, inner))}")
        else:
            lines.append(f"{name}: {_plain(inner)}")
    return lines


def _plain(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _headline(summary: Summary) -> str:
    fraction = min((flow.attainable_fraction for flow in summary.flows), default=0.0)
    steady = f"Without faults every flow ran at {fraction:.1%} or more of what the fabric allows."
    struck = [fault for fault in summary.faults if fault.flows_affected]
    if not summary.faults:
        return f"{steady} No fault was injected."
    if not any(fault.flows for fault in summary.faults):
        return f"{steady} No fault took effect in the measured time."
    if not struck:
        return f"{steady} No flow had an active EV through a link that failed."
    fault = max(struck, key=lambda one: one.stall_ms or 0)
    found = (
        "not every flow noticed it"
        if fault.detection_ms is None
        else f"every flow concerned took a path out of service within {fault.detection_rtt:.1f} "
        f"RTT ({fault.detection_real_us:.0f} µs at full speed)"
    )
    if fault.recovery_ms is None:
        back = "goodput did not come back"
    elif fault.recovery_ms == 0:
        back = "goodput never fell below 95%"
    else:
        back = f"goodput was back after {fault.recovery_rtt:.1f} RTT"
    return (
        f"{steady} When {fault.target} failed ({fault.kind}), {found}; {back}; "
        f"{number(fault.packets_lost)} packets were lost to it."
    )


def _picture(data: RunData, drawing: Drawing) -> Picture:
    raw = (data.directory / "figures" / f"{drawing.stem}.svg").read_bytes()
    source = f"data:image/svg+xml;base64,{base64.b64encode(raw).decode()}"
    return Picture(drawing.title, drawing.caption, source)


def _ev_events(data: RunData) -> list[Mapping[str, Any]]:
    """Every change of an EV but the start, in order of time, with its flow and path named."""
    flows = {flow.flow: flow for flow in data.run.flows}
    events = data.tables["ev_events"].filter(pl.col("old") != "")
    return [
        {
            **event,
            "flow": flows[event["flow"]].name,
            "path": data.path_of(flows[event["flow"]], event["ev"]).name,
        }
        for event in events.iter_rows(named=True)
    ]
