"""A steady stream of packets over every path of a small fabric, both ways, and which arrived."""

import contextlib
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from testbed.model.addressing import directions_of_path, ev_for_path, flow_label_of_ev, paths
from testbed.model.topology import Topology
from tests.fabric.packets import HEADER, encapsulated, raw_socket

EVERY_NS = 4_000_000
TOKEN = struct.Struct("=qq")


@dataclass(frozen=True, slots=True)
class Sent:
    """One packet: when it was sent, the directions of its path, its path's bits."""

    t_ns: int
    directions: tuple[str, ...]
    path_bits: int


class PathTraffic:
    """Sends a packet on every path each way every few milliseconds while its block runs.

    Attributes:
        sent: every packet, by number.
        intact: the numbers of those that arrived as they were sent.
    """

    def __init__(self, topology: Topology) -> None:
        """Open the sockets of both hosts."""
        one, other = topology.hosts
        self._topology = topology
        self._pairs = ((one, other), (other, one))
        self._senders = [raw_socket(src, socket.IPPROTO_RAW) for src, _ in self._pairs]
        self._receivers = [raw_socket(dst, socket.IPPROTO_IPV6) for _, dst in self._pairs]
        self.sent: list[Sent] = []
        self.intact: set[int] = set()
        self._inner: list[bytes] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
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
            due_ns = max(due_ns + EVERY_NS, time.monotonic_ns())
            self._send()
            self._receive_until(due_ns)
        self._receive_until(time.monotonic_ns() + 100_000_000)

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

    def _receive_until(self, deadline_ns: int) -> None:
        while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
            for receiver in select.select(self._receivers, [], [], left_ns / 1e9)[0]:
                inner = receiver.recv(9000)
                if len(inner) < HEADER.size + TOKEN.size:
                    continue
                number, _ = TOKEN.unpack_from(inner, HEADER.size)
                if 0 <= number < len(self._inner) and self._inner[number] == inner:
                    self.intact.add(number)
