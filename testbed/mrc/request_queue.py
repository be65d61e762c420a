"""The control packets of a requester: EV probes, reliability probes and port status updates."""

from collections import deque
from collections.abc import Callable
from typing import Final

from testbed.mrc.config import QpConfig
from testbed.mrc.constants import EndpointOp
from testbed.mrc.counters import Counters
from testbed.mrc.endpoint import Endpoint
from testbed.mrc.wire.packets import EndpointRequest, ReliabilityProbe

_PROBE_ID_MASK: Final = 0xFFFF
"""A SACK returns the id of a reliability probe in 16 bits."""


class RequestQueue:
    """What a requester asks of its peer, until it is sent.

    Attributes:
        packets: the queue; the caller of `transmit` pops what it sends.
        endpoint: gives endpoint requests their ids and takes in the responses.
    """

    def __init__(self, config: QpConfig, counters: Counters, endpoint: Endpoint) -> None:
        self._config = config
        self._counters = counters
        self._shift = config.timestamp_shift
        self._own_unit = config.own_unit
        self._tail_probes: dict[int, tuple[int, int]] = {}
        self.packets: deque[ReliabilityProbe | EndpointRequest] = deque()
        self.endpoint = endpoint

    def _timestamp(self, now_ns: int) -> int:
        return now_ns >> self._shift & 0xFFFF

    def probe_ev(self, ev_value: int, now_ns: int, answered: Callable[[int], None]) -> None:
        """Probe an EV; `answered` is called with the time of the answer."""
        self._counters.ev_probes += 1
        self._ask(ev_value, EndpointOp.EV_PROBE, 0, now_ns, answered)

    def update_ports(
        self, ev_value: int, mask: int, now_ns: int, answered: Callable[[int], None]
    ) -> None:
        """Send the peer the mask of the own ports that are reachable."""
        self._ask(ev_value, EndpointOp.PORT_STATUS_UPDATE, mask, now_ns, answered)

    def _ask(
        self,
        ev_value: int,
        op: EndpointOp,
        mask: int,
        now_ns: int,
        answered: Callable[[int], None],
    ) -> None:
        config = self._config
        self.packets.append(
            EndpointRequest(
                config.local_address,
                config.peer_address,
                ev_value,
                op,
                self.endpoint.ask(config.peer_address, op, answered),
                mask,
                self._timestamp(now_ns),
                self._own_unit,
            )
        )

    def probe_tail(self, ev_value: int, order: int, now_ns: int) -> None:
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
                config.qpn & 0xFFFF,
                probe_id,
                self._timestamp(now_ns),
                self._own_unit,
            )
        )

    def tail_probe_answered(self, probe_id: int) -> tuple[int, int] | None:
        """Return the order of a reliability probe and when it was sent; None if unknown."""
        return self._tail_probes.pop(probe_id & _PROBE_ID_MASK, None)
