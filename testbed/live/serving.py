"""The process of the server: started before a run, with as few rights as possible.

Its caller keeps a `PageServer`: the address, and the requests that come in.
"""

import asyncio
import itertools
import os
import pwd
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Any, Protocol

from testbed.control_api import OVER, Access, refused_request
from testbed.live.forks import FORKS
from testbed.model.errors import InputError, RunFailedError
from testbed.model.run_files.layout import LOGS
from testbed.rights import caller
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import Child, spawn

if TYPE_CHECKING:
    from testbed.live.page import PageOffer

LOOPBACK = "127.0.0.1"

Answer = tuple[int, Any]
"""The status, and the content as the value of JSON."""

Reply = Callable[[Answer], None]
"""Takes the answer to a request, at once or later."""


class Asked(Protocol):
    """Something that was asked elsewhere: an answer has come when its descriptor can be read."""

    def fileno(self) -> int:
        """The descriptor."""

    def finish(self) -> None:
        """Take the answer, and reply."""


Answering = Callable[[str, str, str, Reply], Asked | None]
"""Answers a request, given its method, path and body; returns what it has asked elsewhere."""

END = "/end"
"""The request that ends the run."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens.

    Attributes:
        host: the address of this machine.
        port: the TCP port; 0: any that is free.
        read_only: whether the page only shows the run.
        is_replay: whether the run is over: it can be forked, but not be broken.
        has_prompt: whether it has a prompt, where it ends, in place of a scenario.
    """

    host: str = LOOPBACK
    port: int = 0
    read_only: bool = False
    is_replay: bool = False
    has_prompt: bool = False

    @property
    def offer(self) -> "PageOffer":
        if self.read_only:
            return "watch"
        return "fork" if self.is_replay else "break" if self.has_prompt else "control"


class PageServer:
    """A server that runs, from its caller's side.

    Attributes:
        address: of the page, its token included.
        port: its TCP port.
        wants_end: whether somebody at the page has ended the run.
    """

    def __init__(self, start: Callable[[], Child], address: str, port: int) -> None:
        self._start = start
        self._process = start()
        self._restarts = 0
        self._unanswered = set[tuple[int, int]]()
        self._asked = set[Asked]()
        self.address = address
        self.port = port
        self.wants_end = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.has_ended

    def handle_requests(self, answer: Answering, timeout_s: float = 0.0) -> None:
        """Begin to answer what has been asked, after waiting for it at most this long.

        A server that has ended is started again, at the same address; browsers come back by
        themselves. If that does not help, nobody asks any more: no reason to end the run.
        """
        if self._process.has_ended and self._restarts < MOST_RESTARTS:
            self._restarts += 1
            self._process.wait()
            self._process.close()
            self._process = self._start()
            self._unanswered.clear()
        if self._process.has_ended:
            select([], [], [], timeout_s)
            return
        waited: list[Child | Asked] = [self._process, *self._asked]
        ready = select(waited, [], [], timeout_s)[0]
        for asked in self._asked.intersection(ready):
            self._asked.discard(asked)
            asked.finish()
        if self._process not in ready or self._process.has_ended:
            return
        try:
            for message in self._process.receive():
                if "path" in message:
                    self._begin(answer, **message)
        except RunFailedError:  # it has ended meanwhile
            return

    def _begin(self, answer: Answering, number: int, method: str, path: str, body: str) -> None:
        request = self._restarts, number
        self._unanswered.add(request)
        reply = partial(self._reply, request)
        if path == END:
            self.wants_end = True
            reply((HTTPStatus.OK, {}))
            return
        if len(self._asked) >= MOST_ASKED:
            expected = f"fewer than {MOST_ASKED} requests that wait for their answers"
            reply(refused_request(HTTPStatus.SERVICE_UNAVAILABLE, path, expected))
            return
        try:
            asked = answer(method, path, body, reply)
            if asked is not None:
                self._asked.add(asked)
        except Exception as error:  # noqa: BLE001 - a request, whatever is in it, ends no run
            traceback.print_exc(file=sys.stderr)
            text = f"{type(error).__name__}: {error}"
            reply((HTTPStatus.INTERNAL_SERVER_ERROR, {"error": text}))

    def _reply(self, request: tuple[int, int], answer: Answer) -> None:
        """Answer a request, unless nobody waits for that any more."""
        if request in self._unanswered:
            self._unanswered.discard(request)
            status, content = answer
            with suppress(RunFailedError):  # it has ended meanwhile
                self._process.send({"reply": request[1], "status": status, "content": content})

    def end(self) -> None:
        """Let clients read the end of the stream, and end the server."""
        for request in [*self._unanswered]:
            self._reply(request, OVER)
        self._process.ends_within(_LAST_S)

    def close(self) -> None:
        self._process.kill()
        self._process.close()


@contextmanager
def serving(stream: Path, where: Listening, forks_in: Path | None = None) -> Iterator[PageServer]:
    """Serve the page and an event stream in a process of its own while the block runs.

    Args:
        stream: the file, which exists and may grow.
        where: where to listen.
        forks_in: the run directory whose forks are served; default: that of the stream.

    Raises:
        InputError: the port is taken, or the address is none of this machine.
        ModuleNotFoundError: the extra `live` is not installed.
    """
    import uvicorn  # noqa: F401, PLC0415 - fails here, where it can be told

    with ExitStack() as files:
        listener = files.enter_context(_bound(where))
        port = listener.getsockname()[1]
        access = access_to(where.host, port)
        descriptor = os.open(stream, os.O_RDONLY | os.O_CLOEXEC)
        files.callback(os.close, descriptor)
        forks_directory = (forks_in or stream.parent) / FORKS
        try:
            forks_directory.mkdir(exist_ok=True)
        except OSError:  # a finished run that nobody may change: it has no forks, and gets none
            forks_directory = stream.with_name(FORKS)
            forks_directory.mkdir(exist_ok=True)
        forks = os.open(forks_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        files.callback(os.close, forks)
        page = _page((descriptor, forks), access, where)

        def start() -> Child:
            return spawn(
                lambda channel: _serve(channel, listener, page),
                title="the server of the page",
                isolated=False,
                name="live",
                log=stream.with_name(LOGS) / "live.log",
            )

        site = PageServer(start, f"http://{where.host}:{port}/{access.token}/", port)
        try:
            yield site
            site.end()
        finally:
            site.close()


@contextmanager
def publishing(port: int) -> Iterator[PageServer]:
    """Serve requests for faults and commands on the loopback, without a page, while a block runs.

    Args:
        port: the TCP port.

    Raises:
        InputError: it is taken.
        ModuleNotFoundError: the extra `live` is not installed.
    """
    import uvicorn  # noqa: F401, PLC0415 - as above

    with _bound(Listening(port=port)) as listener:
        access = replace(access_to(LOOPBACK, port), only_pages=False)

        def made_for(control: _ChannelControl) -> Any:
            from testbed.live.server import interface  # noqa: PLC0415 - only there

            return interface(control, access)

        def start() -> Child:
            return spawn(
                lambda channel: _serve(channel, listener, made_for),
                title="the server of the interface",
                isolated=False,
                name="publish",
            )

        site = PageServer(start, f"http://{LOOPBACK}:{port}/{access.token}/", port)
        try:
            yield site
        finally:
            site.close()


def access_to(host: str, port: int) -> Access:
    """Who may call a server that listens at an address: those who know its token, a new one."""
    return Access(frozenset(f"{name}:{port}" for name in (host, LOOPBACK, "localhost")))


_LAST_S = 1.0
"""How long clients have to read the end of the stream."""

MOST_RESTARTS = 20
"""So often a server that has ended is started again."""

MOST_ASKED = 200
"""So many requests wait for answers from elsewhere at once. Each has a descriptor, and select(2)
takes no more than 1,024."""

_NICENESS = 5
"""Of the server: what runs comes first."""


def at_once(answer: Callable[[str, str, str], Answer]) -> Answering:
    """Answers requests that need no time."""
    return lambda method, path, body, reply: reply(answer(method, path, body))


def wait(site: PageServer, answer: Answering) -> None:
    """Answer requests until the server ends, or a signal comes."""
    while not site.has_ended:  # before it would be started again: Polars has started threads
        site.handle_requests(answer, _LAST_S)


def _bound(where: Listening) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((where.host, where.port))
        listener.listen()
    except OSError as error:
        listener.close()
        expected = f"a free TCP port of this machine ({error.strerror})"
        raise InputError.of("--port", f"{where.host}:{where.port}", expected) from error
    return listener


def drop_rights() -> None:
    """Become the user who called sudo, or nobody, if this process is root's."""
    if os.geteuid() != 0:
        return
    user = caller()
    if user is not None:
        ids = user.uid, user.groups[0]
    else:
        nobody = pwd.getpwnam("nobody")
        ids = nobody.pw_uid, nobody.pw_gid
    os.setgroups([])
    os.setresgid(ids[1], ids[1], ids[1])
    os.setresuid(ids[0], ids[0], ids[0])


class _ChannelControl:
    """Passes requests on over a channel, and their replies back."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[tuple[int, Any]]] = {}

    async def request(self, method: str, path: str, body: str) -> tuple[int, Any]:
        """The status and the content of the answer."""
        number = next(self._numbers)
        reply = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        self._channel.send({"number": number, "method": method, "path": path, "body": body})
        answer: tuple[int, Any] = await reply
        return answer

    def receive(self) -> bool:
        """Hand replies to those who wait; whether the other end is open."""
        messages = self._channel.receive()
        for message in messages or ():
            waiting = self._waiting.pop(message["reply"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result((message["status"], message["content"]))
        return messages is not None


def _page(files: tuple[int, int], access: Access, where: Listening) -> "MadeFor":
    """The application of a page; `files`: the stream, the forks."""

    def made_for(control: _ChannelControl) -> Any:
        from testbed.live.server import Site, application  # noqa: PLC0415 - only there

        sent_on = None if where.read_only else control
        return application(Site(files, access, sent_on, where.offer))

    return made_for


MadeFor = Callable[[_ChannelControl], Any]
"""Makes an ASGI application that passes requests on."""


def _serve(channel: Channel, listener: socket.socket, made_for: MadeFor) -> None:
    """Serve until the other end of the channel closes."""
    from testbed.live.server import server_of  # noqa: PLC0415 - only here

    control = _ChannelControl(channel)
    server = server_of(made_for(control))

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        def readable() -> None:
            if not control.receive():
                loop.remove_reader(channel.fileno())
                server.should_exit = True

        loop.add_reader(channel.fileno(), readable)
        await server.serve(sockets=[listener])

    drop_rights()
    with suppress(OSError):
        os.nice(_NICENESS)
    asyncio.run(serve())
