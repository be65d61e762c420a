"""The TCP connection by which two programs exchange the parameters of their queue pairs.

As with perftest, one end listens and the other connects to it. Each sends the other its queue
pairs' numbers, first PSNs and memory. MRC itself sets up nothing.
"""

import errno
import json
import operator
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from testbed.device.client import ClientQp, Device, MemoryRegion
from testbed.model.closeable import Closeable
from testbed.model.errors import InputError, RunFailedError
from testbed.mrc.config import Capabilities
from testbed.mrc.verbs import Destination

PORT = 18515
"""The port that perftest uses."""

TIMEOUT_S = 120.0
_RETRY_S = 0.1
_CONNECTS_S = 10.0
_LARGEST_PORT = 65_535
_LONGEST = 1 << 24
"""Bytes of a message: thousands of queue pairs take a tenth of it."""

_OTHER_PROGRAM = "the peer is another program, which exchanges no queue pairs as this one does"


@dataclass(frozen=True, slots=True)
class RemoteMemory:
    va: int
    rkey: int
    length: int


class Rendezvous(Closeable):
    """A connection to the peer's program. Leaving its `with` block waits for the peer to do so.

    Attributes:
        is_client: whether this end connected to the other.
    """

    def __init__(self, device: Device, connection: socket.socket, *, is_client: bool) -> None:
        self.is_client = is_client
        self._device = device
        self._connection = connection
        self._received = b""
        self._ended = False

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the peer's.

        Raises:
            ConnectionError: the peer's program, or the NIC process of this host, has ended.
            RunFailedError: it has sent something else than a message.
        """
        with suppress(BrokenPipeError, ConnectionResetError):  # what it said before counts
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        self.work(lambda: b"\n" in self._received)
        line, _, self._received = self._received.partition(b"\n")
        try:
            answer: dict[str, Any] = dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise RunFailedError(_OTHER_PROGRAM) from error
        return answer

    def work(self, until: Callable[[], bool]) -> None:
        """Wait until `until` returns true, as `Device.run` does.

        Raises:
            ConnectionError: the peer's program, or the NIC process of this host, has ended.
        """
        wake = self._connection.fileno()
        self._device.run(lambda: until() or self._peer_ended(), wake=wake)
        if self._ended and not until():
            raise ConnectionError("the peer's program has ended")

    def connect(self, qps: Sequence[ClientQp], region: MemoryRegion) -> RemoteMemory:
        """Connect queue pairs to as many of the peer's; returns the memory region that it offers.

        When this returns both ends are in RTS.

        Each queue pair's end learns what the other can take (see `Capabilities`).

        Raises:
            RunFailedError: the peer has another number of queue pairs, its capabilities are not a
                message of this version, or it is another program.
        """
        parameters = {
            "address": self._device.address.hex(),
            "qps": [[qp.local.qpn, qp.local.psn, qp.local.capabilities.message()] for qp in qps],
            "memory": [region.va, region.rkey, len(region.buffer)],
        }
        peer = self.exchange(parameters)
        try:
            address = bytes.fromhex(peer["address"])
            ends = [
                Destination(address, qpn, psn, Capabilities.of_message(capabilities))
                for qpn, psn, capabilities in peer["qps"]
            ]
            memory = RemoteMemory(*peer["memory"])
            numbers = [number for end in ends for number in (end.qpn, end.psn)]
            for number in (*numbers, memory.va, memory.rkey, memory.length):
                operator.index(number)
        except KeyError as error:
            raise RunFailedError(_OTHER_PROGRAM) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise RunFailedError(f"the peer's queue pairs cannot be used: {error}") from error
        if len(ends) != len(qps):
            raise RunFailedError(f"the peer has {len(ends)} queue pairs, this program {len(qps)}")
        for qp, end in zip(qps, ends, strict=True):
            qp.connect(end)
        self.exchange({"state": "RTS"})
        return memory

    def _peer_ended(self) -> bool:
        """Read what has arrived; returns whether the peer has closed the connection."""
        with suppress(BlockingIOError):  # that is all
            while not self._ended:
                try:
                    data = self._connection.recv(1 << 16, socket.MSG_DONTWAIT)
                except ConnectionResetError:  # it has ended without reading all
                    data = b""
                self._received += data
                self._ended = not data
                if len(self._received) > _LONGEST:
                    raise RunFailedError(_OTHER_PROGRAM)
        return self._ended

    def __exit__(self, *raised: object) -> None:
        """Wait until the peer is done, which may still need this program; then close."""
        if not any(raised):
            self.exchange({"state": "done"})
        self.close()

    def close(self) -> None:
        """Close the connection at once."""
        self._connection.close()


def meet(device: Device, server: str | None = None, *, port: int = PORT) -> Rendezvous:
    """Connect to the program that listens on a host, or listen for one (no `server`).

    Args:
        device: the device of this end.
        server: the other host's name, or an address of it.
        port: the TCP port.

    Raises:
        InputError: no host has that name or address, or the port is none or taken.
        TimeoutError: no program listened, or connected, for `TIMEOUT_S`.
        ConnectionError: the address cannot be reached.
    """
    if not 1 <= port <= _LARGEST_PORT:
        raise InputError.of("port", str(port), f"a TCP port, 1 to {_LARGEST_PORT}")
    if server is None:
        return Rendezvous(device, _listen(port), is_client=False)
    try:
        found = socket.getaddrinfo(server or "?", port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        another = "h1" if device.host.index == 0 else "h0"
        expected = f"the name of a host of the fabric, such as {another}"
        raise InputError.of("SERVER", server, expected) from error
    found.sort(key=lambda one: one[0] != socket.AF_INET)  # the management network has no faults
    return Rendezvous(device, _connect(server, [one[4] for one in found]), is_client=True)


def _listen(port: int) -> socket.socket:
    try:
        listener = socket.create_server(
            ("::", port), family=socket.AF_INET6, dualstack_ipv6=socket.has_dualstack_ipv6()
        )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        expected = "one on which no other program of this host listens"
        raise InputError.of("port", str(port), expected) from error
    with listener:
        listener.settimeout(TIMEOUT_S)
        try:
            connection, _ = listener.accept()
        except TimeoutError as error:
            what = f"nobody connected to port {port} within {TIMEOUT_S:g} s"
            raise TimeoutError(what) from error
    connection.settimeout(None)
    return connection


def _connect(server: str, addresses: Sequence[Any]) -> socket.socket:
    end = time.monotonic() + TIMEOUT_S
    while True:
        reason = None
        for address in addresses:
            try:
                connection = socket.create_connection(address[:2], _CONNECTS_S)
            except (ConnectionRefusedError, TimeoutError):  # it does not listen yet
                reason = None
                break
            except OSError as error:
                reason = error.strerror
            else:
                connection.settimeout(None)
                return connection
        if reason is not None:
            raise ConnectionError(f"{server} cannot be reached: {reason}")
        if time.monotonic() >= end:
            raise TimeoutError(f"nobody listens on {server}, port {addresses[0][1]}")
        time.sleep(_RETRY_S)
