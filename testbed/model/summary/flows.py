"""What is measured of a flow, of its EVs and of its messages."""

from collections.abc import Sequence
from typing import Annotated

from testbed.model.summary.metric import Comparison, Metric, MetricGroup, View, least, total
from testbed.model.summary.unit import BYTES, IN_MS, IN_RTT, RATE, SHARE, Time

_FORMS = (IN_MS, IN_RTT)
_ALL = View.USUAL | View.OVER_FLOWS


MORE_THAN_SHARE = 0.005
"""A flow takes more than its share if it exceeds what the ideal split allows by this."""


def flow_name(src: str, dst: str, lane: int) -> str:
    """`h0 -> h4`; of further flows of these hosts `h0 -> h4 #1`."""
    return f"{src} -> {dst}{f' #{lane}' if lane else ''}"


class Latency(MetricGroup):
    """Latency of a flow's messages, or of those of all flows: their completion times.

    From handing a message's first packet to the socket until it and all before it are in place.
    """

    messages: Annotated[int, Metric()]
    """Messages that were completed; without the packet that a queue pair sends before the run."""

    median: Annotated[
        Time,
        Metric(
            forms=_FORMS,
            title="message latency, median",
            views=View.REPORT,
            compared=Comparison(),
        ),
    ]
    """The median."""

    p99: Annotated[
        Time,
        Metric(
            forms=_FORMS,
            title="message latency, p99",
            views=View.REPORT,
            compared=Comparison(),
        ),
    ]
    """The 99th percentile."""

    p999: Annotated[Time, Metric(forms=_FORMS, title="message latency, p99.9", views=View.REPORT)]
    """The 99.9th percentile."""

    max: Annotated[Time, Metric(forms=_FORMS)]
    """The longest."""

    @property
    def completion(self) -> str:
        """`812 completed, in 42.0 ms (median), 95.1 ms (p99), 120.0 ms (p99.9)`."""
        unit = IN_MS.unit
        parts = (("median", self.median), ("p99", self.p99), ("p99.9", self.p999))
        times = ", ".join(f"{unit.show(time.ms)} ({name})" for name, time in parts)
        return f"{self.messages} completed, in {times}"


class EvSummary(MetricGroup):
    """An EV that a flow used; `path` is `p0/t1_2`."""

    ev: int
    plane: int
    path: str
    goodput_bps: Annotated[float, Metric(RATE, title="goodput", views=View.REPORT)]
    """Goodput of the flow over this EV, in the steady window."""

    packets_sent: Annotated[int, Metric(title="sent", views=View.REPORT)]
    """Data packets sent in the whole run."""

    packets_lost: Annotated[int, Metric(title="lost", views=View.REPORT)]
    """Transmissions in the whole run that were declared lost and had not arrived."""


class FlowSummary(MetricGroup):
    """One flow over the whole run.

    The *steady window* lasts from 10 base RTTs after the start (or 30% of the time until the first
    fault, if that is less) to the first fault, or to the end. The *whole run* is counted from one
    base RTT after the start, when the first packets can have been acknowledged; if all that the
    flow carried had arrived before, from the start.
    """

    flow: int
    src: str
    dst: str
    lane: int = 0
    transport: str
    victim: bool = False
    """Whether it is the flow beside an incast."""

    goodput_run_bps: Annotated[
        float, Metric(RATE, title="goodput, whole run", views=_ALL, combine=least)
    ]
    """Newly placed payload per second, over the whole run."""

    ideal_fraction: Annotated[
        float | None,
        Metric(
            SHARE,
            title="of ideal split",
            views=_ALL,
            combine=least,
            compared=Comparison("slowest flow, of ideal split"),
        ),
    ] = None
    """`goodput_run_bps` / `ideal_run_bps`. Above 1: the flow took more than its share, because
    others did not use theirs. Null, as all fractions of what is allowed: nothing was allowed, or
    the flow had nothing to send."""

    run_fraction: Annotated[
        float | None,
        Metric(
            SHARE,
            title="of even split",
            views=_ALL,
            combine=least,
            compared=Comparison("slowest flow, of even split"),
        ),
    ] = None
    """`goodput_run_bps` / `attainable_run_bps`: over what an even split allows."""

    ideal_in_force_fraction: Annotated[
        float | None,
        Metric(
            SHARE,
            title="during faults, of ideal split",
            views=View.REPORT | View.OVER_FLOWS,
            combine=least,
        ),
    ] = None
    """Payload newly placed while any fault was in force, over what the ideal split allowed in that
    time. Null: no fault took effect."""

    in_force_fraction: Annotated[
        float | None,
        Metric(SHARE, title="during faults, of even split", views=View.REPORT, combine=least),
    ] = None
    """The same over what an even split allowed."""

    goodput_before_bps: Annotated[
        float | None, Metric(RATE, title="before faults", views=View.REPORT, combine=least)
    ] = None
    """Newly placed payload per second, over the steady window. Null: a fault began at the start."""

    ideal_before_fraction: Annotated[
        float | None,
        Metric(SHARE, title="before faults, of ideal split", combine=least, views=View.REPORT),
    ] = None
    """`goodput_before_bps` over what the ideal split allowed in the steady window."""

    before_fraction: Annotated[
        float | None,
        Metric(SHARE, title="before faults, of even split", views=View.REPORT, combine=least),
    ] = None
    """`goodput_before_bps` over what an even split allowed in the steady window."""

    goodput_healed_bps: Annotated[
        float | None, Metric(RATE, title="after healing", views=View.REPORT, combine=least)
    ] = None
    """Newly placed payload per second, from 10 base RTTs after the last healing to the end of the
    run. Null: a fault did not heal, or the run ended before."""

    ideal_healed_fraction: Annotated[float | None, Metric(SHARE, combine=least)] = None
    """`goodput_healed_bps` over what the ideal split allowed in that time."""

    healed_fraction: Annotated[float | None, Metric(SHARE, combine=least)] = None
    """`goodput_healed_bps` over what an even split allowed in that time."""

    ports_bps: Annotated[float, Metric(RATE, combine=least)]
    """Its max-min fair share of the hosts' ports alone: what a transport that uses all paths can
    reach if the links between switches are no limit."""

    ports_fraction: Annotated[float, Metric(SHARE, title="of the ports' share", combine=least)]
    """`goodput_run_bps` / `ports_bps`."""

    undamaged_bps: Annotated[float, Metric(RATE, combine=least)]
    """Payload rate that the ideal split allows before any fault, beside the most flows that there
    are at once."""

    ideal_run_bps: Annotated[float, Metric(RATE, combine=least)]
    """Payload rate that the fabric allows, the mean over the whole run: the max-min fair share of
    all links in service at each moment with the ideal split, the one over all paths that gives the
    smallest flow the most; less the control packets of the sending host, times the payload's share
    of a full packet (MRC 4096 / 4238, RoCE 4096 / 4214, TCP 4112 / 4238). Flows that had nothing to
    send in the whole run take no share."""

    attainable_run_bps: Annotated[float, Metric(RATE, combine=least)]
    """The same with an even split, at which MRC aims: planes carry equal shares, the active EVs of
    a plane do so, too, and what is lost is sent again on the next EV. A transport with one path
    uses that path."""

    capacity_lost: Annotated[Time | None, Metric(forms=(IN_RTT,), views=View.REPORT)] = None
    """What the fabric no longer offered the flow: the integral of (undamaged - ideal) / undamaged
    over the whole run."""

    capacity_lost_bytes: Annotated[int, Metric(BYTES, combine=total)] = 0
    """The same in bytes of payload."""

    deficit: Annotated[
        Time | None, Metric(forms=(IN_RTT,), views=View.REPORT | View.OVER_FLOWS)
    ] = None
    """What the transport did not use of what was left: the integral of (ideal - goodput) /
    undamaged over the whole run. Negative: it took more than its share."""

    deficit_bytes: Annotated[int, Metric(BYTES, combine=total)] = 0
    """The same in bytes of payload."""

    in_order_delay_p99: Annotated[
        Time | None,
        Metric(forms=_FORMS, title="in-order delay, p99", views=View.REPORT | View.OVER_FLOWS),
    ] = None
    """From handing a packet to the socket until it and all before it had arrived: how far in-order
    data was behind what was sent. The 99th percentile of the packets of the run; for packets that
    were never in order, the time until the end counts."""

    in_order_delay_max: Annotated[
        Time | None, Metric(forms=_FORMS, title="in-order delay, longest")
    ] = None
    """The longest in-order delay."""

    packets_sent: Annotated[int, Metric(title="sent", views=View.REPORT, combine=total)]
    """Data packets handed to the socket, retransmissions and those that measured the base RTT
    included."""

    packets_lost: Annotated[
        int,
        Metric(title="lost", views=View.USUAL, combine=total, compared=Comparison("packets lost")),
    ]
    """Transmissions declared lost, less those that had arrived."""

    packets_retransmitted: Annotated[
        int,
        Metric(
            title="retransmitted",
            views=View.USUAL,
            combine=total,
            compared=Comparison("packets sent again"),
        ),
    ]
    """Data packets sent again."""

    packets_spurious: Annotated[int, Metric(title="spurious", views=View.REPORT, combine=total)]
    """Transmissions declared lost that had arrived."""

    packets_lost_elsewhere: Annotated[int, Metric(combine=total)]
    """Transmissions lost that no fault explains: not sent on a path through a faulty link between
    one base RTT before the fault and its healing."""

    packets_reordered: Annotated[int, Metric(combine=total)]
    """First transmissions that arrived after a later one of the same EV. A path keeps the order, so
    the machine reordered them."""

    reorder_depth_max: Annotated[int, Metric()]
    """The most PSNs by which a first transmission was late, over all paths: due to spraying."""

    goodput_by_plane_bps: dict[int, float]
    evs: tuple[EvSummary, ...]
    latency: Latency | None

    @property
    def name(self) -> str:
        """As `flow_name` writes it."""
        return flow_name(self.src, self.dst, self.lane)

    @property
    def idle(self) -> bool:
        """Whether it had nothing to send."""
        return self.run_fraction is None and self.attainable_run_bps > 0

    @property
    def reached(self) -> float:
        """Its `ideal_fraction`, if it had something to send; 0 if nothing was allowed."""
        return self.ideal_fraction or 0.0


class NodeSummary(MetricGroup):
    """A node: the flows of all its NICs together. Only where nodes have several NICs."""

    node: str
    nics: Annotated[int, Metric(title="NICs", views=View.USUAL)]
    """NICs that send or receive."""

    goodput_sent_bps: Annotated[
        float, Metric(RATE, title="goodput, sent", views=View.USUAL, combine=least)
    ]
    """The sum of `goodput_run_bps` of the flows that its NICs send."""

    goodput_received_bps: Annotated[
        float, Metric(RATE, title="goodput, received", views=View.USUAL, combine=least)
    ]
    """The same of the flows that they receive."""

    ideal_fraction: Annotated[
        float | None,
        Metric(
            SHARE,
            title="of ideal split",
            views=View.USUAL,
            combine=least,
            compared=Comparison("slowest node, of ideal split"),
        ),
    ] = None
    """`goodput_sent_bps` over what the ideal split allows these flows. Null: its NICs had nothing
    to send."""

    run_fraction: Annotated[
        float | None, Metric(SHARE, title="of even split", views=View.USUAL, combine=least)
    ] = None
    """The same over what an even split allows."""

    packets_lost: Annotated[int, Metric(title="lost", views=View.USUAL, combine=total)]
    """Transmissions of these flows declared lost, less those that had arrived."""

    @property
    def name(self) -> str:
        """The node's: `n0`."""
        return self.node


MAX_FLOWS = 8
"""Tables show each flow up to this number; of more flows they show the slowest ones."""


def slowest_flows(flows: Sequence[FlowSummary], most: int = MAX_FLOWS) -> Sequence[FlowSummary]:
    """The flows that tables show, in their order, or the slowest first if there are more.

    Flows that had nothing to send are last.
    """
    if len(flows) <= most:
        return flows
    return sorted(flows, key=lambda flow: (flow.idle, flow.reached))[:most]
