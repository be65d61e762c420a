"""Many packets of MRC on chosen paths and in chosen classes, and what arrives of them."""

import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from testbed.emulation.endpoint.nic import Carriers
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc.wire.codec import encode_write
from testbed.mrc.wire.kinds import Opcode
from testbed.sandbox.processes import Child, spawn

from .packets import in_node, raw_socket

QPN = 17
SO_RCVBUFFORCE = 33


@dataclass(frozen=True, slots=True)
class Arrival:
    """An inner packet, whole, and the traffic class of its outer header."""

    packet: bytes
    traffic_class: int


class Stream:
    """Makes WRITE packets from one host to another."""

    def __init__(self, topology: Topology, src: Node, dst: Node) -> None:
        self._carriers = Carriers(topology, src)
        self._src, self._dst = nic_address(topology, src).packed, nic_address(topology, dst).packed

    def packet(
        self, psn: int, dscp: int, size: int, ev: int = 0, *, timed: bool = True
    ) -> tuple[bytes, tuple[str, int]]:
        """The outer packet with so many bytes of payload, and where to send it."""
        payload = psn.to_bytes(4, "big") * (size // 4)
        inner = b"".join(self.inner(psn, dscp, payload, ev, timed=timed))
        carrier = self._carriers.to(self._dst, ev, dscp)
        return carrier.outer_header(len(inner)) + inner, carrier.address

    def inner(
        self, psn: int, dscp: int, payload: bytes, ev: int = 0, *, timed: bool = True
    ) -> tuple[bytes, ...]:
        """The inner packet in three parts, with TSETH or without it."""
        header, trailer = encode_write(
            self._src,
            self._dst,
            ev,
            QPN,
            psn,
            Opcode.WRITE_MIDDLE,
            False,
            False,
            0,
            7,
            0 if timed else None,
            0,
            0,
            1 << 20,
            payload,
            dscp,
        )
        return header, payload, trailer


def psn_of(packet: bytes) -> int:
    return int.from_bytes(packet[57:60], "big")


def send(src: Node, packets: Iterable[tuple[bytes, tuple[str, int]]]) -> None:
    """Hand packets to a host's kernel, as fast as it takes them."""
    with raw_socket(src, socket.IPPROTO_RAW) as sender:
        for data, to in packets:
            sender.sendto(data, to)


@contextmanager
def in_background(*jobs: Callable[[], None]) -> Iterator[None]:
    """Run functions in processes of their own; wait for them at the end of the block."""

    def start(job: Callable[[], None]) -> Child:
        return spawn(lambda _: job(), title="a job", isolated=False)

    children = [start(job) for job in jobs]
    try:
        yield
    finally:
        for child in children:
            child.result()


class Receiver:
    """The NIC of a host: every inner packet that it gets."""

    def __init__(self, host: Node) -> None:
        with in_node(host):
            self._socket = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_IPV6)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 27)
        self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def arrivals(self, silence_s: float = 0.3) -> Iterator[Arrival]:
        """Yield what arrives until nothing has for a while."""
        self._socket.settimeout(silence_s)
        while True:
            try:
                packet, ancillary, _, _ = self._socket.recvmsg(9000, 64)
            except TimeoutError:
                return
            yield Arrival(packet, struct.unpack("@i", ancillary[0][2])[0])
