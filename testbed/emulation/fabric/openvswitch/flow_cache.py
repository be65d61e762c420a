"""Forwarding decisions that Open vSwitch's datapath caches, seen through ovs-vswitchd."""

import contextlib
import json
import re
import socket
from pathlib import Path

from testbed.emulation.fabric.openvswitch.switch import RUN_DIRECTORY, control_socket
from testbed.model.errors import RunFailedError
from testbed.rights import as_root

_TIMEOUT_S = 2.0


class FlowCache:
    """The decisions that the datapath has derived from the flow tables and still uses.

    OpenFlow's barrier confirms that the flow tables have changed. A datapath that caches decisions
    revalidates them only milliseconds later.

    Attributes:
        is_used: whether the datapath caches any; assumed until `query`.
    """

    def __init__(self, run_directory: Path = RUN_DIRECTORY) -> None:
        """Take Open vSwitch's run directory; nothing is queried yet."""
        self._control = control_socket(run_directory, "ovs-vswitchd")
        self.is_used = True

    def query(self) -> None:
        """Ask ovs-vswitchd, which has just started or connected, whether it caches decisions.

        Raises:
            RunFailedError: it did not answer in time, or its answer has no limit of flows.
        """
        answer = self._command("upcall/show")
        limits = re.findall(r"\(limit (\d+)\)", answer)
        if not limits:
            raise RunFailedError(f"ovs-vswitchd did not report its limit of flows: {answer}")
        self.is_used = any(int(limit) for limit in limits)

    def purge(self) -> bool:
        """Make the flow tables hold for every later packet; returns whether that took a purge.

        Raises:
            RunFailedError: ovs-vswitchd refused or did not answer in time.
        """
        if self.is_used:
            self._command("revalidator/purge")
        return self.is_used

    def _command(self, method: str) -> str:
        """Send a command to ovs-vswitchd; returns its answer, as `ovs-appctl` prints it."""
        request = {"id": 0, "method": method, "params": []}
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(_TIMEOUT_S)
                with as_root():  # whose socket it is
                    sock.connect(str(self._control))
                sock.sendall(json.dumps(request).encode())
                answer = _receive_json(sock)
        except OSError as error:
            raise RunFailedError(
                f"ovs-vswitchd does not answer on {self._control}: {error}"
            ) from error
        if answer.get("error") is not None:
            raise RunFailedError(f"ovs-vswitchd: {answer['error']}")
        return str(answer.get("result"))


def _receive_json(sock: socket.socket) -> dict[str, object]:
    received = b""
    while chunk := sock.recv(4096):
        received += chunk
        with contextlib.suppress(json.JSONDecodeError):
            answer = json.loads(received)
            if isinstance(answer, dict):
                return answer
    raise ConnectionError("closed before the answer was complete")
