"""A steady stream both ways, over one link or over every path, and which of it arrived."""

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

from testbed.model.fabric.addressing import directions_of_path, ev_for_path, flow_label_of_ev, paths
from testbed.model.fabric.nodes import Link
from testbed.model.fabric.topology import Topology
from tests.fabric.packets import HEADER, encapsulated, in_node, raw_socket

ETHERTYPE = 0x88B5  # IEEE 802: for local experiments
TOKEN = struct.Struct("=qq")


class _Stream:
    """Sends something each way at a steady pace while its block runs."""

    every_ns: ClassVar[int]
    linger_ns: ClassVar[int]
    """What was sent last may take so long to arrive."""

    def __init__(self, receivers: Sequence[socket.socket]) -> None:
        self._receivers = receivers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Stop, after what is under way has arrived."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        due_ns = time.monotonic_ns()
        while not self._ended.is_set():
            due_ns = max(due_ns + self.every_ns, time.monotonic_ns())
            self._send()
            self._receive_until(due_ns)
        self._receive_until(time.monotonic_ns() + self.linger_ns)

    def _receive_until(self, deadline_ns: int) -> None:
        while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
            for receiver in select.select(self._receivers, [], [], left_ns / 1e9)[0]:
                with contextlib.suppress(OSError):  # an end that went down
                    self._take(receiver, receiver.recv(9000))

    def _send(self) -> None:
        raise NotImplementedError

    def _take(self, receiver: socket.socket, data: bytes) -> None:
        raise NotImplementedError


class LinkTraffic(_Stream):
    """A small frame each way over one link, every millisecond.

    Attributes:
        sent: when each frame was sent, by direction: 0 up, 1 down.
        arrived: the send times of those that arrived.
    """

    every_ns = 1_000_000
    linger_ns = 50_000_000

    def __init__(self, link: Link) -> None:
        """Open a socket at each end."""
        self.sent: tuple[list[int], list[int]] = ([], [])
        self.arrived: tuple[list[int], list[int]] = ([], [])
        self._ends = []
        for port in link.ports:
            with in_node(port.node):
                end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
            end.bind((port.name, ETHERTYPE))
            end.setblocking(False)
            self._ends.append(end)
        self._macs = [bytes.fromhex(port.mac.replace(":", "")) for port in link.ports]
        super().__init__(self._ends)

    def arrived_between(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """How many frames sent in this time arrived, up and down."""
        up, down = (sum(start_ns <= t < end_ns for t in times) for times in self.arrived)
        return up, down

    def lost_between(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """How many frames sent in this time did not arrive, up and down."""
        there = self.arrived_between(start_ns, end_ns)
        up, down = (sum(start_ns <= t < end_ns for t in times) for times in self.sent)
        return up - there[0], down - there[1]

    def _send(self) -> None:
        for direction, end in enumerate(self._ends):
            now_ns = time.monotonic_ns()
            frame = struct.pack(
                ">6s6sHq36x", self._macs[1 - direction], self._macs[direction], ETHERTYPE, now_ns
            )
            self.sent[direction].append(now_ns)
            with contextlib.suppress(OSError):  # an end that is down
                end.send(frame)

    def _take(self, receiver: socket.socket, data: bytes) -> None:
        (sent_ns,) = struct.unpack_from(">q", data, 14)
        self.arrived[1 - self._ends.index(receiver)].append(sent_ns)


@dataclass(frozen=True, slots=True)
class Sent:
    """One packet: when it was sent, the directions of its path, its path's bits."""

    t_ns: int
    directions: tuple[str, ...]
    path_bits: int


class PathTraffic(_Stream):
    """A packet on every path of a small fabric each way, every few milliseconds.

    Attributes:
        sent: every packet, by number.
        intact: the numbers of those that arrived as they were sent.
    """

    every_ns = 4_000_000
    linger_ns = 100_000_000

    def __init__(self, topology: Topology) -> None:
        """Open the sockets of both hosts."""
        first, second = topology.hosts
        self._topology = topology
        self._pairs = ((first, second), (second, first))
        self._senders = [raw_socket(src, socket.IPPROTO_RAW) for src, _ in self._pairs]
        self.sent: list[Sent] = []
        self.intact: set[int] = set()
        self._inner: list[bytes] = []
        super().__init__([raw_socket(dst, socket.IPPROTO_IPV6) for _, dst in self._pairs])

    def _send(self) -> None:
        for (src, dst), sender in zip(self._pairs, self._senders, strict=True):
            for path in paths(self._topology, src, dst):
                bits = flow_label_of_ev(ev_for_path(path))
                token = TOKEN.pack(len(self.sent), bits) * 4
                data, to = encapsulated(self._topology, src, dst, path, token)
                labelled = (6 << 28 | bits).to_bytes(4, "big") + data[4:]
                directions = directions_of_path(self._topology, src, dst, path)
                self._inner.append(data[HEADER.size :])
                self.sent.append(Sent(time.monotonic_ns(), directions, bits))
                with contextlib.suppress(OSError):  # its port is down
                    sender.sendto(labelled, (to, 0))

    def _take(self, receiver: socket.socket, data: bytes) -> None:  # noqa: ARG002 - by its number
        if len(data) < HEADER.size + TOKEN.size:
            return
        number, _ = TOKEN.unpack_from(data, HEADER.size)
        if 0 <= number < len(self._inner) and self._inner[number] == data:
            self.intact.add(number)
