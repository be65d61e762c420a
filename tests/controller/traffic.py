"""A steady stream of small frames over one link, both ways, and which of them arrived."""

import contextlib
import select
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self

from testbed.model.topology import Link
from tests.fabric.packets import in_node

ETHERTYPE = 0x88B5  # IEEE 802: for local experiments
EVERY_NS = 1_000_000


class Traffic:
    """Sends a frame each way every millisecond while its block runs.

    Attributes:
        sent: when each frame was sent, by direction: 0 up, 1 down.
        arrived: the send times of those that arrived.
    """

    def __init__(self, link: Link) -> None:
        """Open a socket at each end."""
        self.sent: tuple[list[int], list[int]] = ([], [])
        self.arrived: tuple[list[int], list[int]] = ([], [])
        self._sockets = []
        for port in link.ports:
            with in_node(port.node):
                end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
            end.bind((port.name, ETHERTYPE))
            end.setblocking(False)
            self._sockets.append(end)
        self._macs = [bytes.fromhex(port.mac.replace(":", "")) for port in link.ports]
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

    def arrived_between(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """How many frames sent in this time arrived, up and down."""
        up, down = (sum(start_ns <= t < end_ns for t in one) for one in self.arrived)
        return up, down

    def lost_between(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """How many frames sent in this time did not arrive, up and down."""
        there = self.arrived_between(start_ns, end_ns)
        up, down = (sum(start_ns <= t < end_ns for t in one) for one in self.sent)
        return up - there[0], down - there[1]

    def _run(self) -> None:
        due_ns = time.monotonic_ns()
        while not self._ended.is_set():
            due_ns += EVERY_NS
            self._send()
            self._receive_until(due_ns)
        self._receive_until(time.monotonic_ns() + 50_000_000)

    def _send(self) -> None:
        for direction, end in enumerate(self._sockets):
            now_ns = time.monotonic_ns()
            frame = struct.pack(
                ">6s6sHq36x", self._macs[1 - direction], self._macs[direction], ETHERTYPE, now_ns
            )
            self.sent[direction].append(now_ns)
            with contextlib.suppress(OSError):  # an end that is down
                end.send(frame)

    def _receive_until(self, deadline_ns: int) -> None:
        while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
            ready, _, _ = select.select(self._sockets, [], [], left_ns / 1e9)
            for end in ready:
                with contextlib.suppress(OSError):  # an end that went down
                    (sent_ns,) = struct.unpack_from(">q", end.recv(100), 14)
                    self.arrived[1 - self._sockets.index(end)].append(sent_ns)
