"""The HTTP server of pages and interfaces: uvicorn, with limits for those who only connect.

Nobody needs a token to connect. A connection that has not made a request in time is closed, and so
is the oldest of them when there are many: who has the token is answered, however many others hold
connections open.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""How long a connection may take for its first request."""

MOST_WAITING = 200
"""Connections without a request that are kept, far fewer than a process may have files open."""


class Server(uvicorn.Server):
    """Leaves signals alone: Ctrl-C is for the command, which ends this process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def server_of(application: Any) -> Server:
    """A server of an ASGI application."""
    config = uvicorn.Config(
        application,
        http=_impatient(),
        log_level="warning",
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    config.load()
    return Server(config)


def _impatient() -> type[H11Protocol]:
    """The protocol of one server's connections."""
    waiting: dict[Any, Any] = {}  # the timers of connections, the oldest first

    class Impatient(H11Protocol):
        """A connection that is closed if it makes no request."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            waiting[self] = self.loop.call_later(REQUEST_S, transport.abort)
            if len(waiting) > MOST_WAITING:
                next(iter(waiting)).give_up()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None:
                self._forget()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def give_up(self) -> None:
            self._forget()
            self.transport.abort()

        def _forget(self) -> None:
            timer = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

    return Impatient
