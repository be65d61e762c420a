"""Takes faults and an operator's commands by hand, on the socket in the run's directory.

A process of its own speaks HTTP, and asks that of the fabric one thing at a time: a slow client
holds up other clients only.
"""

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from testbed.control_api import Answer
from testbed.emulation.controller.live import SOCKET, LiveControl
from testbed.model.run_files.layout import LOGS
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import Child, spawn
from testbed.sandbox.system_calls import socket_name

_PATIENCE_S: Final = 10.0
"""How long a client may take to send its request. Ours."""


@contextmanager
def taking_commands(directory: Path) -> Iterator[Child]:
    """Listen while the block runs; yields the process.

    It sends `{"method": ..., "path": ..., "body": ...}`, and waits for `{"status": number,
    "content": ...}`.
    """
    log = directory / LOGS / "control.log"
    title = "the process that takes commands"
    child = spawn(
        lambda channel: _serve(directory / SOCKET, channel),
        title=title,
        isolated=False,
        name="control",
        log=log,
    )
    try:
        yield child
    finally:
        child.kill()
        child.close()
        (directory / SOCKET).unlink(missing_ok=True)


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S


class _Server(WSGIServer):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, _ = self.socket.accept()
        return connection, ("", 0)


def _serve(path: Path, channel: Channel) -> None:
    """Serve until the run has ended."""

    def ask(method: str, path: str, body: str) -> Answer:
        channel.send({"method": method, "path": path, "body": body})
        for reply in channel.messages():
            return HTTPStatus(reply["status"]), reply["content"]
        raise ConnectionError("the run has ended")

    with socket_name(path) as name, _Server(name, _Handler) as server:  # type: ignore[arg-type]
        server.set_app(LiveControl(ask))
        watched: list[WSGIServer | Channel] = [server, channel]
        while channel not in select.select(watched, [], [])[0]:
            server.handle_request()
