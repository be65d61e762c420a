"""What is measured of a fault, and of its effect on each flow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from testbed.model.summary.flows import flow_name
from testbed.model.summary.metric import (
    Comparison,
    Metric,
    MetricGroup,
    Spread,
    View,
    greatest,
    least,
    total,
)
from testbed.model.summary.unit import (
    BYTES,
    IN_RTT,
    MS,
    RATE,
    SECONDS,
    SHARE,
    Scale,
    Time,
)

RECOVERED_SHARE = 0.95
"""Goodput is back at this share of the level at which it settles."""

_SHOWN = View.USUAL | View.FLOWS_OF_FAULT | View.OVER_FLOWS


@dataclass(frozen=True)
class LossShare(Metric):
    """The share of some packets that were lost; of several flows that of their packets together.

    Attributes:
        lost: the metric that counts those that were lost.
        sent: the metric that counts all of them.
    """

    lost: str = ""
    sent: str = ""

    def share(self, flows: Sequence[Any]) -> float | None:
        """The share of the flows' packets; None if none was sent."""
        lost, sent = (sum(getattr(flow, name) for flow in flows) for name in (self.lost, self.sent))
        return lost / sent if sent else None

    def measure(self, source: object, scale: Scale) -> float | None:  # noqa: ARG002 - of times
        """The share of a flow's packets, from an object that counts them."""
        return self.share([source])


class FaultEffect(MetricGroup):
    """What a fault did to a flow, to two hosts or to all flows together, or the worst of it.

    Goodput is that of all flows in question together. Of what is measured of EVs and of data in
    order several flows have their worst, and packets are summed. Times count from when the fault
    took effect, or from healing. An EV is *concerned* if its path crosses the faulty link. A fault
    is *in force* from its effect to its healing, or to the end.
    """

    level: Annotated[
        float | None,
        Metric(
            SHARE,
            title="level in force, of ideal split",
            views=_SHOWN,
            combine=least,
            compared=Comparison(of_run=True),
        ),
    ] = None
    """The level at which goodput settles while the fault is in force: goodput over what the ideal
    split allows, in the second half of that time (up to the next fault, if that is earlier). Null:
    nothing was allowed, or that time is shorter than two base RTTs."""

    level_even: Annotated[
        float | None,
        Metric(
            SHARE,
            title="level in force, of even split",
            views=_SHOWN,
            combine=least,
            compared=Comparison(of_run=True),
        ),
    ] = None
    """The same goodput over what an even split allows, at which MRC aims."""

    level_healed: Annotated[
        float | None,
        Metric(
            SHARE,
            title="level afterwards, of ideal split",
            views=View.USUAL,
            combine=least,
            compared=Comparison(),
        ),
    ] = None
    """The level at which goodput settles afterwards: goodput over what the ideal split allows, in
    the second half of the time from healing to the next fault, or the end. Null: the fault did not
    heal two base RTTs before."""

    level_healed_even: Annotated[
        float | None,
        Metric(
            SHARE,
            title="level afterwards, of even split",
            views=View.REPORT,
            combine=least,
            compared=Comparison(),
        ),
    ] = None
    """The same goodput over what an even split allows."""

    detection: Annotated[
        Time | None,
        Metric(
            title="detection, first EV",
            views=_SHOWN,
            compared=Comparison(),
            never="that lost packets did not detect it",
        ),
    ] = None
    """Until the first concerned EV leaves the active set. 0: it left while the fault was taking
    effect, as a host does whose own port loses carrier. Never: packets were lost, and no EV left
    while the fault was in force. Null: no packet was lost, and no EV left."""

    detection_last: Annotated[
        Time | None, Metric(title="detection, last EV", views=View.REPORT, compared=Comparison())
    ] = None
    """Until the last concerned EV that was active while the fault was in force leaves the active
    set. Never: packets were lost, and not all of them did."""

    exposure: Annotated[Time | None, Metric(views=View.REPORT, combine=greatest)] = None
    """Until the last data packet is sent on a concerned EV while the fault is in force. Null: none
    was sent."""

    stall: Annotated[Time | None, Metric(views=_SHOWN, compared=Comparison())] = None
    """The longest time without progress of in-order data at the receiver. Only times that begin
    while the fault is in force count; the first one begins with the fault."""

    placement_gap: Annotated[
        Time | None, Metric(title="longest gap in placement", views=View.REPORT)
    ] = None
    """The longest time without a newly placed byte. Only times that begin while the fault is in
    force count."""

    in_order_delay: Annotated[Time | None, Metric(title="in-order delay", views=_SHOWN)] = None
    """The longest time from handing a packet to the socket until it and all before it had arrived,
    of packets that were sent before the fault healed and were not in order before it took effect.
    It says how far in-order data was behind what was sent; a stall says how long it made no
    progress."""

    recovery: Annotated[
        Time | None,
        Metric(views=_SHOWN, compared=Comparison(of_run=True), never="did not recover"),
    ] = None
    """Until goodput, averaged over one base RTT, is back at 95% of the level at which it settles
    (`level`) and stays there until the fault heals; if it never does, until it is back at 95% of
    `level_healed` and stays there up to the next fault or the end. 0 if it never fell below. Never:
    it did not come back. Null: the next fault or the end was within half a base RTT."""

    below_share: Annotated[
        float | None, Metric(SHARE, title="time below 95%", views=View.REPORT)
    ] = None
    """The share of the time in force in which goodput was below 95% of what the ideal split
    allows."""

    goodput_bps: Annotated[
        float | None,
        Metric(RATE, title="goodput in force", views=View.FLOWS_OF_FAULT, combine=least),
    ] = None
    """Newly placed payload per second, while the fault was in force."""

    ideal_bps: Annotated[float | None, Metric(RATE, combine=least)] = None
    """Payload rate that the ideal split allows while the fault is in force, the mean."""

    ideal_fraction: Annotated[
        float | None,
        Metric(SHARE, title="goodput in force, of ideal split", views=View.REPORT, combine=least),
    ] = None
    """`goodput_bps` / `ideal_bps`: over the whole time in force, the fall included. Null: nothing
    was allowed."""

    attainable_bps: Annotated[float | None, Metric(RATE, combine=least)] = None
    """Payload rate that an even split allows while the fault is in force, the mean."""

    attainable_fraction: Annotated[
        float | None,
        Metric(SHARE, title="goodput in force, of even split", views=View.REPORT, combine=least),
    ] = None
    """`goodput_bps` / `attainable_bps`. Null: nothing was attainable."""

    return_first: Annotated[Time | None, Metric(title="return, first EV", views=View.REPORT)] = None
    """From healing until the first EV that the fault took out is GOOD again; 0 if it was GOOD
    before. Never: none became GOOD again. Null: the fault took no EV out."""

    return_last: Annotated[Time | None, Metric(title="return, last EV", views=View.REPORT)] = None
    """From healing until the last EV that the fault took out is GOOD again. Never: not all became
    GOOD again."""

    return_data: Annotated[Time | None, Metric(title="return of data", views=View.REPORT)] = None
    """From healing until data is sent on a concerned EV again. Never: none was."""

    capacity_lost: Annotated[
        Time | None,
        Metric(forms=(IN_RTT,), views=View.USUAL, compared=Comparison()),
    ] = None
    """What the fabric no longer offered, whatever the transport: the integral of (undamaged -
    ideal) / undamaged from the fault until 10 base RTTs after its healing, but not beyond the next
    fault or the end. `ideal` is what the ideal split allows, `undamaged` the same without faults.
    1 RTT: as much as if nothing could be sent for one RTT."""

    capacity_lost_bytes: Annotated[int, Metric(BYTES, combine=total)] = 0
    """The same in bytes of payload."""

    deficit: Annotated[
        Time | None, Metric(forms=(IN_RTT,), views=_SHOWN, compared=Comparison())
    ] = None
    """What the transport adds to that, over the same time: the integral of (ideal - goodput) /
    undamaged. 1 RTT: as much as if nothing had been sent for one RTT."""

    deficit_even: Annotated[
        Time | None, Metric(forms=(IN_RTT,), title="deficit, of even split", views=View.REPORT)
    ] = None
    """The same against what an even split allows. The rest of the deficit is what the even split
    costs."""

    deficit_bytes: Annotated[int, Metric(BYTES, combine=total)] = 0
    """`deficit_rtt` in bytes of payload."""

    deficit_baseline: Annotated[
        Time | None, Metric(forms=(IN_RTT,), title="deficit, own baseline", views=View.REPORT)
    ] = None
    """The deficit against the own goodput in the 10 base RTTs before the fault, or since the start
    if that is less. Null: nothing arrived before it."""

    surviving_fraction: Annotated[float | None, Metric(SHARE, combine=least)] = None
    """The share of the undamaged rate that the ideal split allows as the fault takes effect."""

    packets_exposed: Annotated[
        int, Metric(title="packets sent into it", views=View.FLOWS_OF_FAULT, combine=total)
    ] = 0
    """Data packets sent on concerned EVs, from the beginning of the interval of effect to
    healing."""

    packets_lost: Annotated[int, Metric(views=View.REPORT | View.FLOWS_OF_FAULT, combine=total)] = 0
    """Transmissions on concerned EVs, sent from one base RTT before the fault to healing, that were
    lost. Packets in flight when the fault took effect count, so this may exceed
    `packets_exposed`."""

    packets_sent: Annotated[int, Metric(views=View.REPORT, combine=total)] = 0
    """Data packets that the flow sent, on any EV, in the same time as those that count as lost:
    from one base RTT before the fault to healing."""

    packets_sent_after_detection: Annotated[int, Metric(combine=total)] = 0
    """Data packets that the flow sent, on any EV, from the detection until healing."""

    packets_lost_after_detection: Annotated[int, Metric(combine=total)] = 0
    """Transmissions on concerned EVs, sent from the detection until healing, that were lost."""

    loss_share: Annotated[
        float | None,
        LossShare(SHARE, lost="packets_lost", sent="packets_sent", title="loss", views=View.REPORT),
    ] = None
    """`packets_lost` / `packets_sent`, both counted in the same time: never above 1. Null: nothing
    was sent."""

    residual_loss: Annotated[
        float | None,
        LossShare(
            SHARE,
            lost="packets_lost_after_detection",
            sent="packets_sent_after_detection",
            views=View.USUAL,
        ),
    ] = None
    """`packets_lost_after_detection` / `packets_sent_after_detection`. Null: no detection, or
    nothing was sent after it."""


class FlowFault(FaultEffect):
    """What a fault did to one flow; `affected`: a concerned EV of it was active."""

    flow: int
    src: str
    dst: str
    lane: int = 0
    affected: bool
    evs_active: Annotated[int, Metric(title="active EVs through it", views=View.FLOWS_OF_FAULT)]
    """Concerned EVs that were active when the fault took effect, or became active while it was in
    force."""

    evs_detected: Annotated[int, Metric(title="taken out", views=View.FLOWS_OF_FAULT)]
    """Concerned EVs that left the active set while the fault was in force."""

    evs_lossy: Annotated[int, Metric(title="lost packets", views=View.FLOWS_OF_FAULT)] = 0
    """Concerned EVs on which packets were lost."""

    evs_noticed: Annotated[int, Metric(title="of them taken out", views=View.FLOWS_OF_FAULT)] = 0
    """Those of `evs_lossy` that left the active set while the fault was in force."""

    @property
    def name(self) -> str:
        """As `flow_name` writes it."""
        return flow_name(self.src, self.dst, self.lane)


class PairFault(FaultEffect):
    """What a fault did to all queue pairs from one host to another; `affected`: to any of them."""

    src: str
    dst: str
    queue_pairs: int
    affected: bool

    @property
    def name(self) -> str:
        """`h0 -> h4`."""
        return flow_name(self.src, self.dst, 0)


class FaultSummary(FaultEffect):
    """One fault: what was requested, when it took effect, and its worst effect on any two hosts.

    `places` are the directions of links, or the hosts, that it struck. `pairs` is empty where hosts
    have one queue pair each way: then `flows` are the pairs. `run` is its effect on all flows
    together; null: there was none.
    """

    index: int
    kind: str
    target: str
    places: tuple[str, ...]
    actuator: str
    requested_s: Annotated[float, Metric(SECONDS)]
    """When the fault was requested, in the run's time."""

    effective_s: Annotated[float | None, Metric(SECONDS)] = None
    """When the fault took effect: the end of the interval in which it did. Null: it never did."""

    effective_uncertainty_ms: Annotated[float | None, Metric(MS)] = None
    """The length of that interval: times from the fault's effect may be too short by as much."""

    heal_requested_s: Annotated[float | None, Metric(SECONDS)] = None
    """When healing was requested. Null: it was not."""

    healed_s: Annotated[float | None, Metric(SECONDS)] = None
    """When the fault was healed. Null: not in this run."""

    proof: dict[str, Any]
    flows_affected: Annotated[int, Metric()]
    """Flows with an active concerned EV. If it is 0, the fault has no effect to measure."""

    flows_lossy: Annotated[int, Metric()] = 0
    """Affected flows that lost packets to it."""

    flows_noticed: Annotated[int, Metric()] = 0
    """Flows of `flows_lossy` with an EV that left the active set while the fault was in force."""

    evs_lossy: Annotated[int, Metric()] = 0
    """Concerned EVs, of all affected flows, on which packets were lost."""

    evs_noticed: Annotated[int, Metric()] = 0
    """Those of `evs_lossy` that left the active set while the fault was in force."""

    ev_detection_median: Annotated[
        Time | None, Metric(title="detection, median EV", views=View.REPORT)
    ] = None
    """Until an EV that lost packets to the fault leaves the active set: the median of such EVs of
    all affected flows. Never: half of them did not. Null: no packet was lost."""

    ev_detection_last: Annotated[
        Time | None, Metric(title="detection, last EV that lost packets", views=View.REPORT)
    ] = None
    """The same for the last of these EVs. Never: not all of them left."""

    over_pairs: dict[str, Spread] = Field(default_factory=dict)
    run: FaultEffect | None = None
    pairs: tuple[PairFault, ...] = ()
    flows: tuple[FlowFault, ...]

    @property
    def of_pairs(self) -> Sequence[PairFault | FlowFault]:
        """Its effect on each two hosts: on all their queue pairs together."""
        return self.pairs or self.flows

    @property
    def affected_in_words(self) -> str:
        """How many flows it affected, and how many of those that lost packets detected it."""
        if not self.flows:
            return "took no effect on a flow in the measured time"
        if not self.flows_affected:
            return f"no flow used a path through it: 0 of {len(self.flows)} affected"
        text = f"{self.flows_affected} of {len(self.flows)} flows used a path through it"
        if not self.flows_lossy:
            return f"{text}; none lost packets to it"
        flows, evs = f"{self.flows_noticed} of the {self.flows_lossy} flows", "every EV"
        if self.flows_noticed == self.flows_lossy:
            flows = "every flow"
        if self.evs_noticed != self.evs_lossy:
            evs = f"{self.evs_noticed} of the {self.evs_lossy} EVs"
        return (
            f"{text}; {flows} that lost packets detected it: {evs} with losses left the active set"
        )

    @property
    def name(self) -> str:
        """`cut of p0_t0_0--p0_t1_1`."""
        return f"{self.kind} of {self.target}"
