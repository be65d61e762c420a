"""What is measured of a flow, of its EVs and of its messages."""

from testbed.model.summary.metric import (
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
from testbed.model.summary.unit import IN_MS, IN_RTT, PERCENT, RATE

_FORMS = (IN_MS, IN_RTT)
_SHOWN = View.REPORT | View.TERMINAL


class Latency(MetricGroup):
    """Latency of a flow's messages.

    From handing a message's first packet to the socket until it and all before it are in place.
    """

    messages = Count()
    """Messages that were completed."""

    median = RequiredTime(_FORMS, title="message latency, median", views=View.REPORT)
    """The median."""

    p99 = RequiredTime(
        _FORMS,
        title="message latency, p99",
        views=View.REPORT,
        compared=Comparison("message latency, p99", greatest),
    )
    """The 99th percentile."""

    max = RequiredTime(_FORMS)
    """The longest."""


class EvSummary(MetricGroup):
    """One EV of a flow; `path` is `p0/t1_2`."""

    ev: int
    plane: int
    path: str
    goodput_bps = Number(RATE, title="goodput", views=View.REPORT)
    """Goodput of the flow over this EV, in the steady window."""

    packets_sent = Count(title="sent", views=View.REPORT)
    """Data packets sent in the whole run."""

    packets_lost = Count(title="lost", views=View.REPORT)
    """Transmissions in the whole run that were declared lost and had not arrived."""


class FlowSummary(MetricGroup):
    """One flow over the whole run.

    The *steady window* lasts from 10 base RTTs after the start (or 30% of the time until the first
    fault, if that is less) to the first fault, or to the end.
    """

    flow: int
    src: str
    dst: str
    transport: str
    goodput_bps = Number(RATE, title="goodput", views=_SHOWN)
    """Newly placed payload per second, over the steady window."""

    goodput_run_bps = Number(RATE, compared=Comparison("goodput of all flows", total))
    """Newly placed payload per second, over the whole run."""

    attainable_bps = Number(RATE)
    """Payload rate that the fabric allows the flow without faults: its max-min fair share of both
    hosts' ports, less the control packets of the sending host, times 4096 / 4238."""

    attainable_fraction = Number(
        PERCENT,
        title="of attainable",
        views=_SHOWN,
        compared=Comparison("slowest flow, of attainable", least),
    )
    """`goodput_bps` / `attainable_bps`."""

    packets_sent = Count(title="sent", views=View.REPORT)
    """Data packets handed to the socket, retransmissions and those that measured the base RTT
    included."""

    packets_lost = Count(title="lost", views=_SHOWN, compared=Comparison("packets lost", total))
    """Transmissions declared lost, less those that had arrived."""

    packets_retransmitted = Count(
        title="retransmitted", views=_SHOWN, compared=Comparison("packets sent again", total)
    )
    """Data packets sent again."""

    packets_spurious = Count(title="spurious", views=View.REPORT)
    """Transmissions declared lost that had arrived."""

    packets_lost_elsewhere = Count()
    """Transmissions lost that no fault explains: not sent on a path through a faulty link between
    one base RTT before the fault and its healing."""

    packets_reordered = Count()
    """First transmissions that arrived after a later one of the same EV: one path keeps the order,
    so the machine reordered them."""

    reorder_depth_max = Count()
    """The most PSNs by which a first transmission was late, over all paths: spraying does this."""

    goodput_by_plane_bps: dict[int, float]
    evs: tuple[EvSummary, ...]
    latency: Latency | None

    @property
    def name(self) -> str:
        """`h0 -> h4`."""
        return f"{self.src} -> {self.dst}"
