"""The server of the page: what it answers, and to whom.

It has no access to files or to the run: it reads the stream from an open file, and passes requests
for faults on to the process that started it, which checks them.

Nobody needs a token to connect. A connection that has not made a request in time is closed, and so
is the oldest of them when there are many: who has the token is answered, however many others hold
connections open.

    GET    /TOKEN/            the page, and its files below page/
    GET    /TOKEN/events      the event stream as server-sent events, from `Last-Event-ID` on
    POST   /TOKEN/faults      as in testbed/control_api.py; so is DELETE of /TOKEN/faults/N
    POST   /TOKEN/operator    a command for EVs or ports, as in testbed/control_api.py
    POST   /TOKEN/end         end the run
    GET    /TOKEN/scenario    as in testbed/live/forks.py; so are GET and POST of /TOKEN/forks
    GET    /TOKEN/forks/N/    the page of a fork, with its files and its event stream, as above
"""

import asyncio
import json
import mimetypes
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from testbed.control_api import MAX_BODY, Access, refused_request
from testbed.live.page import PAGE, PageOffer, modules, served
from testbed.live.stream.writer import STREAM

POLL_S = 0.05
"""Time between two looks for new records."""

ALIVE_S = 15.0
"""A comment is sent if there is no record for so long, so that a dead connection is noticed."""

RETRY_MS = 1000
_CHUNK_BYTES = 1 << 18

_NUMBER = re.compile(r"[0-9]{1,9}")
"""Of a fault, a fork or a record."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Control(Protocol):
    """Passes requests on to the run."""

    async def request(self, method: str, path: str, body: str) -> tuple[int, Any]:
        """The status and the content of the answer."""


@dataclass(frozen=True, slots=True)
class Site:
    """What one server serves.

    Attributes:
        files: descriptors of the event stream, which may still grow, and of the directory of forks.
        access: who may call it.
        control: passes requests on; None: nobody can change the run.
        offer: what the page offers: everything, forks of a run that is over, or nothing.
    """

    files: tuple[int, int]
    access: Access
    control: Control | None = None
    offer: PageOffer = "control"


def application(site: Site) -> Starlette:
    names = ["style.css", *(f"vendor/{name}" for name in ("uPlot.min.css", "uPlot.iife.min.js"))]
    files = {name: (PAGE / name).read_bytes() for name in (*names, *modules())}
    pages = _Pages(site, files)
    routes = [
        Route("/{token}/", pages.page),
        Route("/{token}/page/{name:path}", pages.file),
        Route("/{token}/events", pages.events),
        Route("/{token}/faults", pages.control, methods=["POST"]),
        Route("/{token}/operator", pages.control, methods=["POST"]),
        Route("/{token}/faults/{number}", pages.control, methods=["DELETE"]),
        Route("/{token}/end", pages.control, methods=["POST"]),
        Route("/{token}/scenario", pages.control, methods=["GET"]),
        Route("/{token}/forks", pages.control, methods=["GET", "POST"]),
        Route("/{token}/forks/{fork}/", pages.page),
        Route("/{token}/forks/{fork}/page/{name:path}", pages.file),
        Route("/{token}/forks/{fork}/events", pages.events),
    ]
    return Starlette(routes=routes, middleware=[guarded_by(site.access)])


def interface(control: Control, access: Access) -> Starlette:
    """The ASGI application that passes requests for faults and commands on, without a page."""

    async def passed_on(request: Request) -> Response:
        return await _passed_on(control, request)

    routes = [
        Route("/{token}/faults", passed_on, methods=["GET", "POST"]),
        Route("/{token}/faults/{number}", passed_on, methods=["GET", "DELETE"]),
        Route("/{token}/operator", passed_on, methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[guarded_by(access)])


def guarded_by(access: Access) -> Middleware:
    """What refuses the requests of those who may not call an application."""
    return Middleware(Guarded, access=access)


class _Pages:
    def __init__(self, site: Site, files: Mapping[str, bytes]) -> None:
        self._site = site
        self._files = files

    async def page(self, request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; "
            "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        offer = "watch" if "fork" in request.path_params else self._site.offer
        content = served(nonce, offer=offer)
        return HTMLResponse(content, headers={"Content-Security-Policy": policy})

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            return PlainTextResponse("no such file", 404)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(self._files[name], media_type=kind)

    async def events(self, request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        first = int(last) + 1 if _NUMBER.fullmatch(last) else 0
        stream, forks = self._site.files
        fork = request.path_params.get("fork")
        if fork is None:
            stream = os.dup(stream)
        else:
            try:
                if not _NUMBER.fullmatch(fork):
                    raise FileNotFoundError(fork)
                stream = os.open(f"{fork}/{STREAM}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=forks)
            except OSError:
                return PlainTextResponse("no such fork, or it is not done", 404)
        return StreamingResponse(_events(stream, first), media_type="text/event-stream")

    async def control(self, request: Request) -> Response:
        if self._site.control is None:
            return _json(HTTPStatus.FORBIDDEN, {"error": "this page only shows the run"})
        return await _passed_on(self._site.control, request)


async def _passed_on(control: Control, request: Request) -> Response:
    """Pass a request on, without its token, and answer it."""
    path = "/" + request.scope["path"].removeprefix("/").partition("/")[2]
    number = request.path_params.get("number", "0")
    if not _NUMBER.fullmatch(number):
        answer = refused_request(HTTPStatus.NOT_FOUND, number[:80], "the number of a fault")
        return _json(*answer)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            found, expected = f"more than {MAX_BODY} B", f"up to {MAX_BODY} B"
            return _json(*refused_request(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, found, expected))
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        return _json(*refused_request(HTTPStatus.BAD_REQUEST, str(error), "JSON in UTF-8"))
    return _json(*await control.request(request.method, path, text))


def _json(status: int, content: Any) -> Response:
    """An answer in JSON; Starlette's own fails for text that is no Unicode."""
    return Response(json.dumps(content), status, media_type="application/json")


async def _events(stream: int, first: int) -> AsyncIterator[bytes]:
    """The records from number `first` on; a line's number is its record's `id`. Closes the stream.

    A slow client is not waited for by anybody: it reads the file at its own pace.
    """
    try:
        yield b"retry: %d\n\n" % RETRY_MS
        offset, number, partial, silent_s = 0, 0, b"", 0.0
        while True:
            raw = os.pread(stream, _CHUNK_BYTES, offset)
            if not raw:
                await asyncio.sleep(POLL_S)
                silent_s += POLL_S
                if silent_s >= ALIVE_S:
                    silent_s = 0.0
                    yield b": alive\n\n"
                continue
            offset += len(raw)
            *lines, partial = (partial + raw).split(b"\n")
            events = []
            for line in lines:
                if number >= first:
                    events.append(b"id: %d\ndata: %s\n\n" % (number, line))
                number += 1
            silent_s = 0.0
            if events:
                yield b"".join(events)
            if lines and b'"type":"end"' in lines[-1]:
                return
    finally:
        os.close(stream)


class Guarded:
    """Refuses requests without the token, and those that another site's page makes."""

    def __init__(self, app: Callable[..., Awaitable[None]], access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        refusal = self._access.refusal(request.method, scope["path"], request.headers)
        if refusal is not None:
            status, text = refusal
            response = PlainTextResponse(text, status, headers={"Connection": "close"})
            await response(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                more = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        await self._app(scope, receive, send_with_headers)


REQUEST_S = 10.0
"""How long a connection may take for its first request."""

MOST_WAITING = 200
"""Connections without a request that are kept, far fewer than a process may have files open."""


class Server(uvicorn.Server):
    """Leaves signals alone: Ctrl-C is for the command, which ends this process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_of(application: Any) -> Server:
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
