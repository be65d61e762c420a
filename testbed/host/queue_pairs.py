"""The queue pairs of a host, from its plan: what opens those of MRC and of RoCE.

Every transport's queue pair has the methods of `ReliableQp`, and its `Demux` hands arriving packets
to the queue pairs. The emulation and the simulator need nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final, Protocol, runtime_checkable

from testbed import mrc
from testbed.host import roce
from testbed.host.own_class import Record
from testbed.host.own_code import CcPath, OwnController, OwnSelector
from testbed.host.plan import EndpointPlan, QpPlan, ev_entries, port_attributes
from testbed.host.recording import Tables
from testbed.host.rounds import PortScheduler
from testbed.host.workloads.messages import Poster
from testbed.model.fabric.addressing import Path, ev_for_path, nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.model.own_code import OwnCode
from testbed.model.transport import Mrc, Roce
from testbed.mrc.config import Capabilities
from testbed.mrc.constants import NS_PER_S
from testbed.mrc.wire.kinds import WireOptions

Controllers = dict[Node, mrc.Window]
"""The congestion windows of a host, by destination."""


class ReliableQp(Poster, Protocol):
    """The methods of every transport's queue pair; `mrc.QueuePair` describes them. Times in ns.

    Attributes:
        touched: whether it needs a turn, whatever its deadlines are.
    """

    touched: bool

    def transmit(self, now_ns: int, limit: int) -> list[mrc.Datagram]:
        """What to send now, at most `limit` data packets."""

    def deadlines(self) -> tuple[int, int]:
        """When to call `transmit` even if no packet arrives: for timers, and for data."""

    def poll_cq(self) -> Sequence[mrc.Completion]:
        """The messages that have completed since the last call."""

    def poll_recv_cq(self) -> Sequence[mrc.ReceiveCompletion]:
        """The peer's WRITEs with immediate that have completed since the last call."""

    def events(self) -> Sequence[mrc.Event]:
        """What has happened since the last call."""

    def sample(self) -> mrc.QpSample:
        """The state of the requester."""


class Demux(Protocol):
    """Hands arriving packets to their queue pair; `mrc.Demux` describes it."""

    def add(self, qp: Any) -> None:
        """Let a queue pair of this transport receive."""

    def receive(self, data: memoryview, arrival: mrc.Arrival) -> mrc.Outbound | None:
        """Process an inner packet; returns an answer to send at once, if any."""

    def receive_undamaged(
        self, datagram: mrc.Datagram, arrival: mrc.Arrival
    ) -> mrc.Outbound | None:
        """Process a packet that arrived undamaged; only a simulator knows that."""

    def refused(self) -> dict[str, int]:
        """How many packets were not acted on, by reason."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A host's end of a transport.

    Attributes:
        demux: hands arriving packets to the queue pairs.
        open_qp: makes a queue pair of the plan that receives into a memory table; the caller adds
            it to `demux`.
        record_counts: records what classes of the user's own have counted.
    """

    demux: Demux
    open_qp: Callable[[QpPlan, mrc.MemoryTable], ReliableQp]
    record_counts: Callable[[], None] = lambda: None


class _Own:
    """What the user's own classes of a host are given, and what they record."""

    def __init__(self, topology: Topology, ports: PortScheduler, tables: Tables) -> None:
        self.ports: Final = ports
        self._topology = topology
        self._tables = tables
        self._append: Callable[..., None] | None = None
        self._records: list[tuple[int, str, Record]] = []

    def given(self, code: OwnCode, key: str, flow: int | None) -> dict[str, Any]:
        """What a class is made with that stands at a key of the transport.

        Args:
            code: the class.
            key: the key.
            flow: what its queue pair sends; None: nothing, and nothing is recorded of it.
        """
        parameters = code.arguments(key, self._topology.round_trip, self._topology.dilation)
        record = Record()
        if flow is not None:
            record = Record(partial(self._row, flow, key, "event"))
            self._records.append((flow, key, record))
        return {"parameters": parameters, "record": record}

    def record_counts(self) -> None:
        """Record every counter that has changed, at the time of the last call of its class."""
        for flow, key, record in self._records:
            for name in sorted(record.changed):
                now_ns = record.now_ns
                if now_ns is not None:
                    self._row(flow, key, "count", now_ns, name, record.counts[name])
            record.changed.clear()

    def _row(self, flow: int, key: str, kind: str, now_ns: int, name: str, value: float) -> None:
        if self._append is None:  # most runs have no such rows
            self._append = self._tables.algorithm()
        self._append(now_ns, flow, key, kind, name, value)


def sans_io_stack(plan: EndpointPlan, ports: PortScheduler, tables: Tables) -> Stack:
    """The stack of MRC or RoCE, which run in the process that drives them.

    Raises:
        ValueError: the transport of the plan runs in the kernel.
    """
    scenario = plan.scenario
    match scenario.transport:
        case Mrc() as transport:
            address = nic_address(scenario.topology, plan.host).packed
            demux = mrc.Demux(address, mrc.DscpClasses(), WireOptions(sealed=plan.sealed))
            controllers: Controllers = {}
            own = _Own(scenario.topology, ports, tables)
            open_qp = partial(_open_mrc, plan, transport, controllers, own)
            return Stack(demux, open_qp, own.record_counts)
        case Roce():
            return Stack(roce.Demux(), partial(_open_roce, plan, scenario.transport))
        case _:
            raise ValueError(f"{scenario.transport.kind} runs in the kernel only")


def mrc_of(qp: ReliableQp) -> mrc.QueuePair | None:
    """A queue pair if it is MRC's: only those have EVs and ports, and can be busy."""
    return qp if isinstance(qp, mrc.QueuePair) else None


@runtime_checkable
class Routed(Protocol):
    """A queue pair whose path the fabric's routing chooses."""

    def reroute(self, ev: int, plane: int, now_ns: int) -> None:
        """Use another path from now on: that of an EV in a plane."""


def reroute(qp: ReliableQp, path: Path, now_ns: int) -> None:
    """Put a queue pair on another path, as the fabric's routing does after a failure.

    Raises:
        TypeError: its transport chooses paths itself.
    """
    if not isinstance(qp, Routed):
        raise TypeError(f"{type(qp)} is not routed by the fabric")
    qp.reroute(ev_for_path(path), path.plane, now_ns)


def _seed(plan: EndpointPlan, qp: QpPlan) -> int:
    """The seed of a queue pair's random choices, so that each uses its EVs in another order."""
    name = f"{plan.scenario.seed}/{plan.host.name}/{qp.peer.name}/{qp.lane}"
    return Random(name).getrandbits(32)  # noqa: S311 - repeatable, not secret


def _open_mrc(
    plan: EndpointPlan,
    parameters: Mrc,
    controllers: Controllers,
    own: _Own,
    qp: QpPlan,
    memory: mrc.MemoryTable,
) -> mrc.QueuePair:
    topology = plan.scenario.topology
    port = port_attributes(topology, plan.host)
    config = port.qp_config(
        qpn=qp.qpn,
        peer_qpn=qp.peer_qpn,
        peer_address=nic_address(topology, qp.peer).packed,
        ev_profile=mrc.EvProfile(
            entries=ev_entries(qp.evs),
            probe_successes=parameters.probe_successes,
            grey_probe_successes=parameters.grey_probe_successes,
            adaptive=parameters.spray != "blind",
            compared=parameters.dialect.judgement == "relative",
        ),
        cwnd=round(parameters.window * topology.planes * topology.bdp_bytes),
        seed=_seed(plan, qp),
    )
    capabilities = Capabilities(**parameters.dialect.capabilities.model_dump())
    config = replace(
        config,
        ecn_skip=parameters.ecn_skip,
        go_back=parameters.repair == "go-back",
        capabilities=capabilities,
        peer_capabilities=capabilities,
        wire=WireOptions(sealed=plan.sealed),
    )
    select = None
    if isinstance(code := parameters.spray, OwnCode):
        given = own.given(code, "spray", qp.sends)
        select = partial(OwnSelector, code, ports=own.ports, **given)
    path_rtt_ns = topology.path_rtt_ns(plan.host, qp.peer, serialised=plan.serialised)
    shared = parameters.dialect.congestion_scope == "destination"
    congestion = controllers.get(qp.peer) if shared else None
    if congestion is None:
        given_own = partial(own.given, key="congestion", flow=qp.sends)
        congestion = _congestion(parameters, port, config, path_rtt_ns, given_own)
        controllers[qp.peer] = congestion
    else:
        congestion.share()
    return mrc.QueuePair(config, memory, congestion, select=select)


def _congestion(
    parameters: Mrc,
    port: mrc.PortAttributes,
    config: mrc.QpConfig,
    path_rtt_ns: int,
    given: Callable[[OwnCode], dict[str, Any]],
) -> mrc.Window:
    """The window of a queue pair, or of all to its destination.

    `given` says what a class of the user's own is made with.
    """
    match parameters.congestion:
        case OwnCode() as code:
            bdp_bytes = port.rate_bps * port.base_rtt_ns // (8 * NS_PER_S)
            path = CcPath(path_rtt_ns, bdp_bytes, port.mtu, port.trimming, config.seed)
            return mrc.Window(partial(OwnController, code, path, **given(code)))
        case "nscc" if parameters.nscc == "uec":
            return mrc.ReceiverWindow(partial(mrc.UecNscc, port.uec_profile(path_rtt_ns)))
        case "nscc":
            return mrc.Window(partial(mrc.Nscc, port.cc_profile(path_rtt_ns)))
        case _:
            return mrc.Window(partial(mrc.FixedWindow, config.cwnd))


def _open_roce(
    plan: EndpointPlan, parameters: Roce, qp: QpPlan, memory: mrc.MemoryTable
) -> roce.RoceQp:
    topology, (ev,) = plan.scenario.topology, qp.evs
    tuning = roce.TUNINGS[parameters.dcqcn]
    interval_ns = tuning.cnp_interval_ns
    config = roce.RoceConfig(
        qpn=qp.qpn,
        peer_qpn=qp.peer_qpn,
        local_address=nic_address(topology, plan.host).packed,
        peer_address=nic_address(topology, qp.peer).packed,
        ev=ev.value,
        plane=ev.path.plane,
        base_rtt_ns=topology.propagation_rtt_ns,
        mtu=PAYLOAD_MTU,
        dcqcn=roce.DcqcnProfile.derive(
            line_rate_bps=topology.port_rate_bps,
            base_rtt_ns=topology.propagation_rtt_ns,
            dilation=topology.dilation,
            tuning=tuning,
        ),
        ack_timeout_ns=round(parameters.ack_timeout * topology.dilation),
        cnp_interval_ns=None if interval_ns is None else round(interval_ns * topology.dilation),
    )
    return roce.RoceQp(config, memory)
