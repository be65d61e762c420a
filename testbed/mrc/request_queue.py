"""The requests of a requester to its peer: probes of EVs and of the tail, port status updates."""

from collections import deque
from functools import partial
from typing import Final

from testbed.mrc.config import QpConfig, RecoveryProbe
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import REQUEST_ID_MASK, EndpointOp, EvMark
from testbed.mrc.endpoint import Answered, Endpoint
from testbed.mrc.entropy import Ev
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.ev.probing import ProbeBatch, ProbeRoom
from testbed.mrc.ev.reverse import ReversePaths
from testbed.mrc.events import Counters
from testbed.mrc.wire.control import EndpointRequest, ReliabilityProbe

_MAX_PROBES: Final = 1024
"""The number of EVs' reliability probes remembered; answers to older ones are useless. Ours."""


class RequestQueue:
    """The requests of a requester to its peer, until they are sent. Times in ns.

    Attributes:
        room: how many EVs may be probed.
        packets: the queue; the caller of `transmit` pops what it sends.
    """

    def __init__(
        self,
        config: QpConfig,
        engine: EvEngine,
        rtt: RttEstimator,
        reverse: ReversePaths,
        counters: Counters,
        endpoint: Endpoint,
    ) -> None:
        self._config = config
        self._engine = engine
        self._rtt = rtt
        self._reverse = reverse
        self._counters = counters
        self._shift = config.timestamp_shift
        self._own_unit = config.own_unit
        self._tail_probes: dict[int, tuple[int, int]] = {}
        self._ev_probes: dict[int, int] = {}
        self.room: Final = ProbeRoom(rtt, config.mtu)
        self.packets: deque[ReliabilityProbe | EndpointRequest] = deque()
        self.join(endpoint)

    def join(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.room.share(endpoint.probes)
        self._ports = endpoint.ports(self._config.peer_address, self._config.base_rtt_ns)
        self._ports_version = 0

    # Ports

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Note a change of the own port of `plane`, and queue a port status update to the peer.

        Raises:
            ValueError: there is no such port.
        """
        self._ports.set_local(plane, down=not up, now_ns=now_ns)

    def port_disabled(self, plane: int, *, disabled: bool, now_ns: int) -> None:
        """Note the operator's order about the own port of `plane`, and queue a port status update.

        Raises:
            ValueError: there is no such port.
        """
        self._ports.set_disabled(plane, disabled=disabled, now_ns=now_ns)

    def probe(self, batch: ProbeBatch, now_ns: int) -> None:
        """Send an EV probe on every EV of a batch."""
        for ev in batch.evs:
            self._counters.ev_probes += 1
            self._ask(ev, EndpointOp.EV_PROBE, 0, now_ns, partial(batch.answered, ev))

    def apply_port_changes(self, now_ns: int) -> list[int]:
        """Have the engine act on changed ports, own or peer's; return the EVs that lost theirs."""
        if self._ports_version == self._ports.version:
            return []
        self._ports_version = self._ports.version
        return self._engine.set_down(self._ports.down, now_ns)

    @property
    def down_planes(self) -> frozenset[int]:
        """The planes whose port is without carrier or disabled, here or at the peer."""
        return self._ports.down

    def _update_ports(self, now_ns: int) -> None:
        """Send the peer the state of the own ports, for all queue pairs with it."""
        ports = self._ports
        due = ports.due_update(now_ns, self._rtt.timeout_ns)
        if due is None:
            return
        number, repeated = due
        ev = self._engine.pick_any() if repeated else self._engine.pick_for_probe(now_ns)
        if ev is not None:
            self._ask(
                ev.value,
                EndpointOp.PORT_STATUS_UPDATE,
                ports.mask,
                now_ns,
                lambda _: ports.answered(number),
            )

    # Time

    @property
    def deadline_ns(self) -> int:
        """When `on_time` has something to do, or `NEVER`; 0 if something waits to be sent."""
        if self.packets or self._ports_version != self._ports.version:
            return 0
        return min(self._engine.deadline_ns, self._reverse.deadline_ns, self._ports.deadline_ns)

    def count_sent(self, payload: int) -> None:
        """Count payload bytes that are sent: the NIC may probe in proportion to them."""
        self._endpoint.probes.count_sent(payload)

    def on_time(self, now_ns: int, window: int, *, outbound: bool) -> None:
        """Queue the probes and updates that are due.

        Args:
            now_ns: the time.
            window: the congestion window in bytes.
            outbound: whether data is in flight.
        """
        self.room.idle = not outbound
        for ev_value, probe_id in self._engine.due_probes(now_ns, self.room, window):
            self._counters.ev_probes += 1
            if self._config.recovery_probe is RecoveryProbe.RELIABILITY:
                self._ev_probes[probe_id] = ev_value
                if len(self._ev_probes) > _MAX_PROBES:
                    del self._ev_probes[next(iter(self._ev_probes))]
                self._probe(ev_value, probe_id, now_ns)
            else:
                answered = partial(self._ev_answered, ev_value, probe_id)
                self._ask(ev_value, EndpointOp.EV_PROBE, 0, now_ns, answered)
        reverse = self._reverse.due_probe(now_ns, outbound=outbound)
        budget, base_ns = self._endpoint.probes, self._config.base_rtt_ns
        if reverse is not None and budget.room(now_ns, base_ns):
            budget.take(1, now_ns, base_ns)
            self._counters.ev_probes += 1
            answered = partial(self._reverse.probe_answered, *reverse)
            self._ask(reverse[0], EndpointOp.EV_PROBE, 0, now_ns, answered)
        if now_ns >= self._ports.deadline_ns:
            self._update_ports(now_ns)

    # Reliability probes

    def probe_tail(self, order: int, avoid: Ev | None, now_ns: int) -> bool:
        """Send a reliability probe, the `order`-th packet of the queue pair.

        Returns whether it is sent: some EV may carry it, where one of another path than `avoid` is
        preferred, and the NIC has room for it.
        """
        if not self._endpoint.probes.take_for_tail(now_ns, self._config.base_rtt_ns):
            return False
        ev = self._engine.pick_for_probe(now_ns, avoid)
        if ev is None:
            return False
        probe_id = self._engine.take_probe_id()
        if len(self._tail_probes) > self._config.tail_probes:
            self._tail_probes.clear()
        self._tail_probes[probe_id] = order, now_ns
        self._counters.tail_probes += 1
        self._probe(ev.value, probe_id, now_ns)
        return True

    def probe_answered(self, probe_id: int, mark: EvMark, now_ns: int) -> tuple[int, int] | None:
        """Process the answer to a reliability probe, which may mark its EV.

        Returns the order of a probe of the tail, and when it was sent; None for others.
        """
        probe_id &= REQUEST_ID_MASK
        ev_value = self._ev_probes.pop(probe_id, None)
        if ev_value is not None:
            unwanted = mark is EvMark.ALWAYS_SKIP
            self._ev_answered(ev_value, probe_id, now_ns, unwanted=unwanted)
            return None
        return self._tail_probes.pop(probe_id, None)

    def _ev_answered(
        self, ev_value: int, probe_id: int, now_ns: int, *, unwanted: bool = False
    ) -> None:
        self.room.answered()
        self._engine.probe_answered(ev_value, probe_id, now_ns, unwanted=unwanted)

    def _probe(self, ev_value: int, probe_id: int, now_ns: int) -> None:
        config = self._config
        self.packets.append(
            ReliabilityProbe(
                config.local_address,
                config.peer_address,
                ev_value,
                config.peer_qpn,
                config.qpn & 0xFFFF,
                probe_id,
                self._timestamp(now_ns),
                self._own_unit,
            )
        )

    def _ask(
        self, ev_value: int, op: EndpointOp, mask: int, now_ns: int, answered: Answered
    ) -> None:
        config = self._config
        self.packets.append(
            EndpointRequest(
                config.local_address,
                config.peer_address,
                ev_value,
                op,
                self._endpoint.ask(config.peer_address, op, answered),
                mask,
                self._timestamp(now_ns),
                self._own_unit,
            )
        )

    def _timestamp(self, now_ns: int) -> int:
        return now_ns >> self._shift & 0xFFFF
