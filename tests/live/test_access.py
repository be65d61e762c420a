"""Every face that a run has over HTTP, called as browsers, programs and attackers do."""

import http.client
import json
import os
import resource
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from testbed import interpreter
from testbed.live import server as limits
from testbed.live import serving as serving_of
from testbed.live.metrics import serve_metrics
from testbed.live.serving import Listening, PageServer, Reply, publishing, serving
from testbed.live.stream.records import RunState
from tests.waiting import WATCHDOG_S, wait_until

FAULT = json.dumps({"kind": "cut", "target": "p0"}).encode()
JSON = {"Content-Type": "application/json"}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Face:
    """A server with the requests that it has passed on."""

    def __init__(self, site: PageServer, shown: str) -> None:
        self.port, self.token = site.port, site.address.rstrip("/").rpartition("/")[2]
        self.shown = f"/{self.token}/{shown}"
        self.passed: list[tuple[str, str, str]] = []
        self.answer: Any = None
        self.takes_long: tuple[str, ...] = ()
        self.replies: list[Reply] = []
        self.site, self._over = site, threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.is_set():
            self.site.handle_requests(self._answer, 0.02)

    def _answer(self, method: str, path: str, body: str, reply: Reply) -> None:
        self.passed.append((method, path, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        if path in self.takes_long:
            self.replies.append(reply)
        else:
            reply((200, self.answer or {}))

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes]:
        """The status and the content of an answer; headers are written with `_` for `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WATCHDOG_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()


@contextmanager
def faced(made: str, directory: Path) -> Iterator[Face]:
    with ExitStack() as stack:
        if made == "publish":
            site = stack.enter_context(publishing(_free_port()))
        else:
            stream = directory / "stream.ndjson"
            stream.touch()
            (directory / "logs").mkdir()
            site = stack.enter_context(serving(stream, Listening()))
        face = Face(site, "faults" if made == "publish" else "")
        stack.callback(face.end)
        yield face


@pytest.fixture(autouse=True)
def _usual_limit() -> Iterator[None]:
    """Processes may have 1,024 files open, as on most machines."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(params=["publish", "page"])
def face(_usual_limit: None, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Face]:
    with faced(request.param, tmp_path) as face:
        yield face


def test_only_who_has_the_token_and_is_no_other_page_changes_anything(face: Face) -> None:
    """A page of another site has neither; DNS rebinding gives it a name, but not ours."""
    here = f"127.0.0.1:{face.port}"
    ours, origin = f"/{face.token}/faults", f"http://{here}"
    wrong = [
        (404, "/faults", {**JSON, "Origin": origin}),
        (404, "/guessed/faults", {**JSON, "Origin": origin}),
        (421, ours, {**JSON, "Origin": "http://evil.example", "Host": f"evil.example:{face.port}"}),
        (421, ours, {**JSON, "Origin": origin, "Host": "127.0.0.1"}),
        (403, ours, {**JSON, "Origin": "http://evil.example"}),
        (403, ours, {**JSON, "Origin": "null"}),
        (403, ours, {**JSON, "Origin": f"http://localhost:{face.port}"}),
        (415, ours, {"Origin": origin, "Content-Type": "text/plain"}),
        (415, ours, {"Origin": origin, "Content-Type": "application/x-www-form-urlencoded"}),
        (415, ours, {"Origin": origin}),
    ]
    for status, path, headers in wrong:
        asked = {name.replace("-", "_"): value for name, value in headers.items()}
        assert face.ask("POST", path, FAULT, **asked)[0] == status, (path, headers)
    assert face.ask("DELETE", f"{ours}/0", Origin="http://evil.example")[0] == 403
    assert face.ask("OPTIONS", ours, Origin="http://evil.example")[0] in {403, 405}
    assert not face.passed
    assert face.ask("POST", ours, FAULT, Content_Type="application/json", Origin=origin)[0] == 200
    assert face.passed == [("POST", "/faults", FAULT.decode())]


def test_a_program_may_use_what_is_published(tmp_path: Path) -> None:
    """It sends no origin; the token is in the address that the command prints."""
    with faced("publish", tmp_path) as face:
        base = f"/{face.token}/faults"
        assert face.ask("GET", base)[0] == 200
        assert (
            face.ask("POST", base, FAULT, Content_Type="application/json; charset=utf-8")[0] == 200
        )
        assert face.ask("DELETE", f"{base}/3")[0] == 200
        assert face.ask("DELETE", f"{base}/{'9' * 5000}")[0] == 404
        assert (
            face.ask("POST", f"/{face.token}/end", b"{}", Content_Type="application/json")[0] == 404
        )
    assert [method for method, _, _ in face.passed] == ["GET", "POST", "DELETE"]


def test_what_a_request_breaks_ends_neither_server_nor_run(face: Face) -> None:
    here = f"http://127.0.0.1:{face.port}"
    face.answer = OverflowError("cannot convert float infinity to integer")
    asked = {"Content_Type": "application/json", "Origin": here}
    status, content = face.ask("POST", f"/{face.token}/faults", FAULT, **asked)
    assert status == 500
    assert "float infinity" in json.loads(content)["error"]
    face.answer = {"text": "\ud800", "number": float("inf")}
    assert face.ask("POST", f"/{face.token}/faults", FAULT, **asked)[0] == 200


def test_what_takes_long_holds_up_nobody(face: Face) -> None:
    """Who still waits when the run ends is told that it is over."""
    face.takes_long = ("/operator",)
    asked = {"Content_Type": "application/json", "Origin": f"http://127.0.0.1:{face.port}"}

    def probe() -> int:
        return face.ask("POST", f"/{face.token}/operator", b"{}", **asked)[0]

    with ThreadPoolExecutor() as pool:
        for status in (200, 409):
            probing = pool.submit(probe)
            wait_until(lambda: face.replies, "the probe is asked for")
            assert face.ask("POST", f"/{face.token}/faults", FAULT, **asked)[0] == 200
            assert not probing.done()
            if status == 200:
                face.replies.pop()((200, {"evs": []}))
            else:
                face.end()
                face.site.end()
            assert probing.result(WATCHDOG_S) == status


def test_so_many_requests_may_wait_for_an_answer_from_elsewhere() -> None:
    """Each has a descriptor; if there were no more of them, the run would end."""
    reading, writing = os.pipe()
    os.write(writing, b"x")
    request = {"method": "POST", "path": "/operator", "body": ""}
    replies: list[dict[str, Any]] = []

    class Process:
        has_ended = False
        send = replies.append

        def fileno(self) -> int:
            return reading

        def receive(self) -> list[dict[str, Any]]:
            return [{**request, "number": number} for number in range(serving_of.MOST_ASKED + 1)]

    class Elsewhere:
        def fileno(self) -> int:
            return writing

        def finish(self) -> None:
            raise AssertionError("no answer has come")

    site = PageServer(lambda: cast("Any", Process()), "", 0)
    site.handle_requests(lambda *_: Elsewhere())
    os.close(reading)
    os.close(writing)
    (refused,) = replies
    assert (refused["reply"], refused["status"]) == (serving_of.MOST_ASKED, 503)


_HALF_OPEN = """
import contextlib, resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
kept = []
for number in range(1200):
    kept.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    with contextlib.suppress(ConnectionError):
        if number % 2:
            kept[-1].sendall(b"GET / HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nX: ")
print("open", flush=True)
sys.stdin.read()
"""


def test_half_open_connections_keep_nobody_out(face: Face) -> None:
    """More than the server may have files open; they send a part of a request, or nothing."""
    command = interpreter.python("-c", _HALF_OPEN, str(face.port))
    with interpreter.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as others:
        assert others.stdout is not None
        assert others.stdin is not None
        assert others.stdout.readline() == b"open\n"
        assert face.ask("GET", face.shown)[0] == 200
        others.stdin.close()


def test_a_connection_without_a_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.2)
    with publishing(_free_port()) as site:
        for sent in (b"", b"GET /", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n12"):
            with socket.create_connection(("127.0.0.1", site.port)) as connection:
                connection.settimeout(WATCHDOG_S)
                connection.sendall(sent)
                while connection.recv(1 << 16):
                    pass


def test_metrics_are_shown_to_no_other_site() -> None:
    port = _free_port()
    serve_metrics(port, RunState)
    for host, expected in ((f"127.0.0.1:{port}", 200), (f"evil.example:{port}", 421)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WATCHDOG_S)
        connection.request("GET", "/metrics", headers={"Host": host})
        assert connection.getresponse().status == expected
        connection.close()
