"""The control packets of a requester: EV probes, reliability probes and port status updates."""

from collections import deque
from typing import Final

from testbed.mrc.config import QpConfig
from testbed.mrc.constants import EndpointOp
from testbed.mrc.counters import Counters
from testbed.mrc.wire.packets import EndpointRequest, ReliabilityProbe
from testbed.mrc.wire.psn import wrap_psn

_PROBE_ID_MASK: Final = 0xFFFF
"""A SACK returns the id of a reliability probe in 16 bits."""


class RequestQueue:
    """What a requester asks of its peer, until it is sent.

    Attributes:
        packets: the queue; the caller of `transmit` pops what it sends.
    """

    def __init__(self, config: QpConfig, counters: Counters) -> None:
        self._config = config
        self._counters = counters
        self._tail_probes: dict[int, tuple[int, int]] = {}
        self.packets: deque[ReliabilityProbe | EndpointRequest] = deque()

    def probe_ev(self, ev_value: int, probe_id: int) -> None:
        """Probe an EV."""
        self._counters.ev_probes += 1
        self._request(ev_value, EndpointOp.EV_PROBE, probe_id, 0)

    def update_ports(self, ev_value: int, update_id: int, mask: int) -> None:
        """Send the peer the mask of the own ports that are down."""
        self._request(ev_value, EndpointOp.PORT_STATUS_UPDATE, update_id, mask)

    def _request(self, ev_value: int, op: EndpointOp, request_id: int, mask: int) -> None:
        config = self._config
        source, destination = config.local_address, config.peer_address
        self.packets.append(
            EndpointRequest(source, destination, ev_value, op, request_id, config.qpn, mask)
        )

    def probe_tail(
        self, ev_value: int, order: int, next_seq: int, timestamp: int, now_ns: int
    ) -> None:
        """Send a reliability probe, the `order`-th packet that the queue pair sends."""
        config = self._config
        probe_id = order & _PROBE_ID_MASK
        if len(self._tail_probes) > config.tail_probes:
            self._tail_probes.clear()
        self._tail_probes[probe_id] = order, now_ns
        self._counters.tail_probes += 1
        self.packets.append(
            ReliabilityProbe(
                config.local_address,
                config.peer_address,
                ev_value,
                config.peer_qpn,
                wrap_psn(next_seq),
                probe_id,
                timestamp,
            )
        )

    def tail_probe_answered(self, probe_id: int) -> tuple[int, int] | None:
        """Return the order of a reliability probe and when it was sent; None if unknown."""
        return self._tail_probes.pop(probe_id & _PROBE_ID_MASK, None)
