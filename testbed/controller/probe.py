"""Does Ryu run here? Tried: it is started as for a run, and must listen for a switch."""

import socket
import tempfile
import time
from pathlib import Path

from testbed.controller.plan import OPENFLOW_PORT
from testbed.controller.process import ControllerProcess
from testbed.fabric.netlink import requests
from testbed.fabric.netlink.socket import Netlink
from testbed.model.errors import RunFailedError
from testbed.model.fabric.topology import Topology

_TIMEOUT_S = 60.0
"""For a machine that is busy with other things: a controller that ends says so at once."""

_RETRY_S = 0.02


def try_ryu() -> str | None:
    """Start the controller in this sandbox and connect to it; returns what is wrong. About 1 s.

    Raises:
        OSError: nobody listens.
    """
    with Netlink("the sandbox") as netlink:
        netlink.send([requests.set_link(requests.LOOPBACK, "lo", up=True)])
    topology = Topology(name="none", planes=1, t0_per_plane=1, t1_per_plane=1, hosts_per_t0=1)
    with tempfile.TemporaryDirectory(prefix="controller-") as scratch:
        directory = Path(scratch)
        try:
            with ControllerProcess.idle(topology, directory, _TIMEOUT_S) as controller:
                _connect(time.monotonic() + _TIMEOUT_S)
                controller.stop()
        except RunFailedError as error:
            said = (directory / "controller.log").read_text().splitlines()
            return said[-1] if said else str(error)
    return None


def _connect(deadline: float) -> None:
    """Connect as a switch does: again, until the controller listens, which may be after "ready"."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", OPENFLOW_PORT), _TIMEOUT_S).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return
