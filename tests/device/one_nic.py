"""A NIC without a fabric, in a thread: what it sends arrives at once, at itself. Needs no root."""

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.device.protocol import SOCKET
from testbed.device.server import NicServer
from testbed.emulation.endpoint.base_device import BaseDevice
from testbed.emulation.endpoint.clock import now_ns
from testbed.model.fabric.topology import Topology
from testbed.mrc import Arrival, Datagram
from testbed.mrc.wire.kinds import WireOptions

NAME = f"{SOCKET}-of-{os.getpid()}"
_TOPOLOGY = Topology(
    name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1, dilation=1000
)
_ROUND_S = 0.001
_PACKETS_OF_A_ROUND = 64


class OneNic(NicServer):
    """Serves programs whose queue pairs are connected to one another."""

    def __init__(self, name: str = NAME) -> None:
        super().__init__(self._opened_device, now_ns, name=name)
        self._wire = deque[Datagram]()

    def _opened_device(self) -> BaseDevice:
        host, _ = _TOPOLOGY.hosts
        wire = WireOptions(sealed=False)
        return BaseDevice(_TOPOLOGY, host, self._send, now_ns, wire=wire)

    def _send(self, datagram: Datagram, _peer: bytes, _now_ns: int) -> int:
        self._wire.append(datagram._replace(payload=bytes(datagram.payload)))
        return 0

    @property
    def programs(self) -> int:
        """How many programs it has."""
        return len(self._programs)

    @property
    def objects(self) -> int:
        """How many objects they have."""
        return sum(len(program._objects) for program in [*self._programs.values()])

    def work(self) -> None:
        """Have a round."""
        self.serve(_ROUND_S)
        if self.device is None:
            return
        if not self.is_used:
            self.release()
            return
        self.take_posted()
        driven = self.device.driven
        driven.transmit(now_ns(), _PACKETS_OF_A_ROUND)
        while self._wire:
            datagram = self._wire.popleft()
            driven.receive_undamaged(datagram, Arrival(datagram.ecn, datagram.dscp, now_ns()))
        self.deliver()


@contextmanager
def serving(nic: OneNic | None = None) -> Iterator[OneNic]:
    """Have it serve while the block runs; what it raises is raised at the end."""
    ended, problems = threading.Event(), list[BaseException]()

    def work(nic: OneNic) -> None:
        try:
            while not ended.is_set():
                nic.work()
        except BaseException as error:  # noqa: BLE001 - raised below
            problems.append(error)
        finally:
            nic.close()

    used = nic or OneNic()
    thread = threading.Thread(target=work, args=(used,))
    thread.start()
    try:
        yield used
    finally:
        ended.set()
        thread.join()
        if problems:
            raise problems[0]
