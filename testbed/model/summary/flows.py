"""What is measured of a flow, of its EVs and of its messages."""

from testbed.model.summary.metric import (
    IN_MS,
    IN_RTT,
    PERCENT,
    RATE,
    Comparison,
    Count,
    MetricGroup,
    Number,
    RequiredTime,
    View,
    greatest,
    least,
    total,
)

_FORMS = (IN_MS, IN_RTT)
_SHOWN = View.REPORT | View.TERMINAL


class Latency(MetricGroup):
    """Latency of a flow's messages.

    From handing a message's first packet to the socket until it and all before it are in place.
    """

    messages = Count("Messages that were completed.")
    median = RequiredTime("The median.", _FORMS, title="message latency, median", views=View.REPORT)
    p99 = RequiredTime(
        "The 99th percentile.",
        _FORMS,
        title="message latency, p99",
        views=View.REPORT,
        compared=Comparison("message latency, p99", greatest),
    )
    max = RequiredTime("The longest.", _FORMS)


class EvSummary(MetricGroup):
    """One EV of a flow; `path` is `p0/t1_2`."""

    ev: int
    plane: int
    path: str
    goodput_bps = Number(
        "Goodput of the flow over this EV, in the steady window.",
        RATE,
        title="goodput",
        views=View.REPORT,
    )
    packets_sent = Count("Data packets sent in the whole run.", title="sent", views=View.REPORT)
    packets_lost = Count(
        "Transmissions in the whole run that were declared lost and had not arrived.",
        title="lost",
        views=View.REPORT,
    )


class FlowSummary(MetricGroup):
    """One flow over the whole run.

    The *steady window* lasts from 10 base RTTs after the start (or 30% of the time until the first
    fault, if that is less) to the first fault, or to the end.
    """

    flow: int
    src: str
    dst: str
    transport: str
    goodput_bps = Number(
        "Newly placed payload per second, over the steady window.",
        RATE,
        title="goodput",
        views=_SHOWN,
    )
    goodput_run_bps = Number(
        "Newly placed payload per second, over the whole run.",
        RATE,
        compared=Comparison("goodput of all flows", total),
    )
    attainable_bps = Number(
        "Payload rate that the fabric allows the flow without faults: its max-min fair share of "
        "both hosts' ports, less the control packets of the sending host, times 4096 / 4238.",
        RATE,
    )
    attainable_fraction = Number(
        "`goodput_bps` / `attainable_bps`.",
        PERCENT,
        title="of attainable",
        views=_SHOWN,
        compared=Comparison("slowest flow, of attainable", least),
    )
    packets_sent = Count(
        "Data packets handed to the socket, retransmissions and those that measured the base RTT "
        "included.",
        title="sent",
        views=View.REPORT,
    )
    packets_lost = Count(
        "Transmissions declared lost, less those that had arrived.",
        title="lost",
        views=_SHOWN,
        compared=Comparison("packets lost", total),
    )
    packets_retransmitted = Count(
        "Data packets sent again.",
        title="retransmitted",
        views=_SHOWN,
        compared=Comparison("packets sent again", total),
    )
    packets_spurious = Count(
        "Transmissions declared lost that had arrived.", title="spurious", views=View.REPORT
    )
    packets_lost_elsewhere = Count(
        "Transmissions lost that no fault explains: not sent on a path through a faulty link "
        "between one base RTT before the fault and its healing."
    )
    packets_reordered = Count(
        "First transmissions that arrived after a later one of the same EV: one path keeps the "
        "order, so the machine reordered them."
    )
    reorder_depth_max = Count(
        "The most PSNs by which a first transmission was late, over all paths: spraying does this."
    )
    goodput_by_plane_bps: dict[int, float]
    evs: tuple[EvSummary, ...]
    latency: Latency | None

    @property
    def name(self) -> str:
        """`h0 -> h4`."""
        return f"{self.src} -> {self.dst}"
