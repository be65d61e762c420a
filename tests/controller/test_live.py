"""Faults by hand: over the socket in the run's directory, with answers that say what is wrong."""

import json
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.control_api import OPERATOR, RunRequests, SimulatedRequests, load_command
from testbed.emulation.controller.live import SOCKET, Client, LiveControl, heal_all, socket_of
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.emulation.fabric.netlink import NodeNamespaces
from testbed.model.errors import ExitStatus, InputError, Problem
from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FaultRecord
from testbed.model.files.scenarios import load_fault
from testbed.model.run_files.layout import RUN
from tests.commands import TESTBED, completed
from tests.controller.test_faults import running
from tests.controller.test_plan import FABRIC_LINK, TINY, fault
from tests.sandbox import in_sandbox
from tests.waiting import WATCHDOG_S

CUT = {"kind": "cut", "target": FABRIC_LINK}


@pytest.mark.root
@in_sandbox
def test_faults_are_injected_and_healed_by_hand(tmp_path: Path) -> None:
    """Beside those of the timeline; each by its number, with its record."""
    timeline = (fault("p1", "50 ms", "30 s"),)
    with running(tmp_path, timeline, ()) as run, NodeNamespaces() as namespaces:
        links = LinkControl(TINY, namespaces)
        run.play("fault")
        with Client(socket_of(tmp_path)) as client:
            cut = client.inject(CUT)
            assert (cut["index"], cut["kind"], cut["error"]) == (1, "cut", None)
            assert links.carrier(FABRIC_LINK) == (False, False)
        with (
            Client(socket_of(tmp_path)) as client,
            pytest.raises(InputError, match="fault 1 is in f"),
        ):
            client.inject({"kind": "cut", "target": "p0_t1_1"})
        with Client(socket_of(tmp_path)) as client, pytest.raises(InputError) as wrong:
            client.inject({"kind": "cut", "target": "p0_t1_7"})
        assert wrong.value.problems[0].where == "fault.target", "as it was typed, no line"
        with Client(socket_of(tmp_path)) as client:
            healed = client.heal(1)
            assert healed["healed_ns"] > healed["heal_after_ns"] > cut["effective_ns"]
            assert links.carrier(FABRIC_LINK) == (True, True)
        with Client(socket_of(tmp_path)) as client:
            assert client.heal(0)["proof"]["until_end"]["carrier"] is True
        with Client(socket_of(tmp_path)) as client, pytest.raises(InputError, match="in force"):
            client.heal(0)
        with (
            Client(socket_of(tmp_path)) as client,
            pytest.raises(InputError, match="number") as none,
        ):
            client.heal(7)
        assert "testbed fault list RUN" in none.value.problems[0].remedy
        with Client(socket_of(tmp_path)) as client:
            client.inject(CUT)
        assert [record["index"] for record in heal_all(socket_of(tmp_path))] == [2]
        assert links.carrier(FABRIC_LINK) == (True, True)
        assert heal_all(socket_of(tmp_path)) == []
        with Client(socket_of(tmp_path)) as client:
            assert [record["kind"] for record in client.faults()] == ["blackhole", "cut", "cut"]
        run.controller.stop()
    assert [record["index"] for record in run.faults()] == [0, 1, 2]
    assert not (tmp_path / SOCKET).exists()


@pytest.mark.root
@in_sandbox
def test_wrong_requests_are_answered_in_json(tmp_path: Path) -> None:
    """As any HTTP client sees them."""

    def request(method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        http = HTTPConnection("run", timeout=WATCHDOG_S)
        http.sock = socket.socket(socket.AF_UNIX)
        http.sock.connect(str(tmp_path / SOCKET))
        http.request(method, path, body)
        response = http.getresponse()
        return response.status, json.loads(response.read())

    with running(tmp_path, (), ()) as run:
        status, answer = request("POST", "/faults", '{"kind": "cut", "target": "p0_t1_7"}')
        assert status == 400
        assert answer["errors"][0]["where"] == "fault.target", "no file, no line"
        assert "did you mean p0_t1_" in answer["errors"][0]["remedy"]
        assert request("POST", "/faults", "{")[0] == 400
        assert request("POST", "/faults", "3")[0] == 400
        assert request("PUT", "/faults")[0] == 405
        assert request("GET", "/links")[0] == 404
        assert request("DELETE", "/faults/0")[0] == 404
        assert request("GET", "/faults/") == (200, [])
        blackhole = json.dumps({"kind": "blackhole", "target": FABRIC_LINK})
        assert request("POST", "/faults", blackhole)[0] == 409, "it has not begun"
        run.play("done")
        assert request("POST", "/faults", blackhole)[0] == 201
        status, answer = request("POST", "/faults", blackhole)
        assert status == 409, "not a second one that nothing could prove"
        assert answer["errors"][0]["found"] == f"blackhole of {FABRIC_LINK}"
        assert "heal fault 0" in answer["errors"][0]["remedy"]
        assert [record["error"] for record in request("GET", "/faults")[1]] == [None]
        run.controller.stop()


@pytest.mark.root
@in_sandbox
def test_it_is_published_on_the_loopback(tmp_path: Path) -> None:
    """For what speaks TCP: the same answers, until Ctrl-C; a port that is taken is said.

    Only at the address that is printed, which has a token.
    """

    def request(address: str, method: str, body: str | None = None) -> tuple[int, Any]:
        server, _, path = address.removeprefix("http://").partition("/")
        http = HTTPConnection(server, timeout=WATCHDOG_S)
        http.request(method, f"/{path}", body, {"Content-Type": "application/json"})
        response = http.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content.startswith((b"{", b"[")) else content

    with running(tmp_path, (), ()) as run, socket.create_server(("127.0.0.1", 0)) as taken:
        run.play("done")
        port = taken.getsockname()[1]
        publish = [str(TESTBED), "fault", "publish", str(tmp_path), "--port"]
        refused = completed([*publish, str(port)])
        assert refused.returncode == ExitStatus.WRONG_INPUT
        assert "a free TCP port" in refused.stderr
        taken.close()
        with subprocess.Popen([*publish, str(port)], stdout=subprocess.PIPE) as published:
            try:
                assert published.stdout is not None
                address = published.stdout.readline().decode().split()[0]
                _await_port(port)
                base = f"http://127.0.0.1:{port}/faults"
                assert request(base, "POST", json.dumps(CUT))[0] == 404
                assert request(address, "GET") == (200, [])
                status, record = request(address, "POST", json.dumps(CUT))
                assert (status, record["kind"], record["error"]) == (201, "cut", None)
                assert request(address, "GET") == (200, [record])
                assert request(address, "POST", "kind: cut")[0] == 400
                assert request(address, "POST", '{"kind": "\u00fc"}')[0] == 400
            finally:
                published.send_signal(signal.SIGINT)
            assert published.wait(WATCHDOG_S) == ExitStatus.AS_EXPECTED
        run.controller.stop()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + WATCHDOG_S
    while True:
        with socket.socket() as tried:
            if not tried.connect_ex(("127.0.0.1", port)):
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.root
@in_sandbox
def test_a_controller_kills_itself_when_it_has_answered(tmp_path: Path) -> None:
    """By hand: who asked is told, and its parent writes down that it ended by that."""
    with running(tmp_path, (), ()) as run:
        run.play("done")
        with Client(socket_of(tmp_path)) as client:
            reply = client.inject({"kind": "kill", "target": "controller"})
        assert (reply["index"], reply["effective_ns"], reply["error"]) == (0, None, None)
        deadline = time.monotonic() + WATCHDOG_S
        while not run.controller.is_dead:
            assert time.monotonic() < deadline
            run.controller.receive(0.2)
        run.controller.stop()
    (record,) = run.faults()
    assert record["effective_ns"] > record["requested_ns"] == reply["requested_ns"]
    assert record["proof"] == {"injected": {"ended": True, "signal": signal.SIGKILL}}
    assert not (tmp_path / SOCKET).exists()


class Failing:
    """A controller that fails over whatever it is asked."""

    def records(self) -> dict[int, FaultRecord]:
        """No fault so far."""
        return {}

    def inject(self, _fault: Fault) -> FaultRecord | Problem:
        raise OSError("no netlink")

    def heal(self, _index: int) -> FaultRecord | None:
        raise OSError("no netlink")


POST = {"REQUEST_METHOD": "POST", "PATH_INFO": "/faults"}


@pytest.mark.parametrize(
    ("request_", "status", "text"),
    [
        (POST, 411, "Content-Length"),
        ({**POST, "CONTENT_LENGTH": ""}, 411, "Content-Length"),
        ({**POST, "CONTENT_LENGTH": "-1"}, 400, "Content-Length: -1"),
        ({**POST, "CONTENT_LENGTH": "1e3"}, 400, "Content-Length: 1e3"),
        ({**POST, "CONTENT_LENGTH": "9" * 5000}, 413, "up to"),
        ({**POST, "CONTENT_LENGTH": "2", "wsgi.input": BytesIO(b"\xff\xfe")}, 400, "UTF-8"),
        ({"REQUEST_METHOD": "DELETE", "PATH_INFO": "/faults"}, 405, "GET or POST of /faults"),
        ({"REQUEST_METHOD": "POST", "PATH_INFO": "/faults/3"}, 405, "GET or DELETE of one"),
        ({"REQUEST_METHOD": "GET", "PATH_INFO": f"/faults/{'9' * 5000}"}, 404, "/faults/N"),
        ({"REQUEST_METHOD": "GET", "PATH_INFO": "/faults/\u0663"}, 404, "/faults/N"),
    ],
)
def test_what_is_wrong_with_a_request_is_told_in_json(
    request_: dict[str, Any], status: int, text: str
) -> None:
    actual, answer = _answered(request_)
    assert actual == status
    assert text in answer["errors"][0]["expected"] + answer["errors"][0]["found"]


WRONG = [
    "",
    "[" * 10_000,
    '{"a":' * 900 + "1" + "}" * 900,
    "NaN",
    "1e999",
    "9" * 5000,
    '"\\ud800"',
    '{"\\udfff": 1}',
    '{"kind": "cut", "target": "\\ud83d\\ude00"}',
    '{"kind": "cut", "target": ["p0", 1e308, null]}',
    '{"kind": "cut", "target": "p0_t0_0-u0..99999999999"}',
    '{"kind": "loss", "target": "p0", "probability": 1e308}',
    '{"kind": "loss", "target": "p0", "probability": NaN}',
    '{"kind": "cut", "target": "p0", "for": "1e400 s"}',
    '{"kind": "cut", "target": "p0", "for": ' + "9" * 4000 + "}",
    '{"kind": "flap", "target": "p0", "count": 1e308}',
    '{"kind": "deny", "flow": {"a": []}, "ev": 1e308}',
    '{"kind": "probe", "flow": "h0->h1", "within": "1e308 s"}',
]


@pytest.mark.parametrize("body", WRONG, ids=lambda body: body[:40])
def test_a_body_that_is_no_fault_and_no_command_is_refused(body: str) -> None:
    """As wrong input, in words that can be sent."""
    for load in (load_fault, load_command):
        with pytest.raises(InputError) as refused:
            load(body, TINY)
        str(refused.value).encode()


def test_a_controller_that_fails_says_so_in_json(caplog: pytest.LogCaptureFixture) -> None:
    body = json.dumps(CUT).encode()
    posted = {"REQUEST_METHOD": "POST", "PATH_INFO": "/faults", "CONTENT_LENGTH": str(len(body))}
    assert _answered({**posted, "wsgi.input": BytesIO(body)}) == (
        500,
        {"error": "OSError: no netlink"},
    )
    assert "Traceback" in caplog.text


def _answered(request: Mapping[str, Any]) -> tuple[int, Any]:
    """The status and the content that one request gets where the controller fails."""
    begun: list[str] = []
    body = LiveControl(RunRequests(TINY, Failing(), _no_operator).answer)(
        request, lambda status, _headers: begun.append(status)
    )
    (status,) = begun
    return int(status.split()[0]), json.loads(b"".join(body))


@pytest.mark.parametrize("error", [OSError("no netlink"), KeyError("no such EV")])
def test_a_command_over_which_a_run_fails_is_answered(error: Exception) -> None:
    """And the run goes on."""

    def fail(*_: object) -> Any:
        raise error

    run: Any = SimpleNamespace(faults=Failing(), operate=fail)
    answers: list[tuple[int, Any]] = []
    command = '{"kind": "list", "flow": "h0->h1"}'
    SimulatedRequests(TINY, run).begin("POST", OPERATOR, command, answers.append)
    answers.append(RunRequests(TINY, Failing(), fail).answer("POST", OPERATOR, command))
    assert answers == [(500, {"error": f"{type(error).__name__}: {error}"})] * 2


def _no_operator(_body: str) -> tuple[HTTPStatus, Any]:
    raise AssertionError("nobody gives a command")


def test_where_nothing_runs_nothing_is_asked(tmp_path: Path) -> None:
    """A directory without a socket, and one whose controller has been killed."""
    with pytest.raises(InputError, match="under way"):
        socket_of(tmp_path)
    (tmp_path / SOCKET).touch()
    with pytest.raises(InputError, match="under way"):
        socket_of(tmp_path)
    (tmp_path / RUN).touch()
    with pytest.raises(InputError, match="a run that is over"):
        socket_of(tmp_path)


@pytest.mark.parametrize("by_page", [False, True])
def test_probes_may_take_longer_than_a_client_waits_for_other_answers(
    by_page: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout_s = 0.1
    monkeypatch.setattr("testbed.emulation.controller.live.TIMEOUT_S", timeout_s)
    command = {"kind": "probe", "flow": "h0->h1", "within": "12 s"}
    with socket.socket(socket.AF_UNIX) as controller, ThreadPoolExecutor() as pool:
        controller.bind(str(tmp_path / SOCKET))
        controller.listen()
        with Client(tmp_path / SOCKET) as client:

            def of_page() -> tuple[int, Any]:
                client.ask("POST", OPERATOR, json.dumps(command))
                select.select([client], [], [])
                return client.answer()

            asked: Future[Any]
            asked = pool.submit(of_page) if by_page else pool.submit(client.operate, command)
            connection, _ = controller.accept()
            with connection:
                connection.recv(1 << 16)
                time.sleep(3 * timeout_s)
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"evs": []}')
                answer: object = asked.result()
    assert answer == ((HTTPStatus.OK, {"evs": []}) if by_page else {"evs": []})


def test_a_fault_by_hand_needs_neither_time_nor_length() -> None:
    """And may have no time to come, as it strikes now."""
    fault = load_fault(json.dumps(CUT), TINY)
    assert (fault.at, fault.heals_at_ns) == (0, 600 * 10**9)
    kill = load_fault(json.dumps({"kind": "kill", "target": "h0"}), TINY)
    assert (kill.at, kill.heals_at_ns) == (0, None)
    flap = load_fault(
        json.dumps({"kind": "flap", "target": FABRIC_LINK, "period": "1 s", "count": 3}), TINY
    )
    assert flap.heals_at_ns == 3 * 10**9
    assert load_fault(json.dumps(CUT, indent="\t"), TINY) == fault
    for text in ("kind: cut", "{kind: cut}", "[" * 60_000, ""):
        with pytest.raises(InputError, match="JSON"):
            load_fault(text, TINY)
    with pytest.raises(InputError, match=r"^fault\.kind: found the key kind a second time"):
        load_fault('{"kind": "cut", "kind": "loss", "target": "p0"}', TINY)
    with pytest.raises(InputError, match="found 3, expected the name of a target, or a list"):
        load_fault(json.dumps(CUT | {"target": 3}), TINY)
    for wrong in ({"at": "3 s"}, {"for": "1 s", "every": "2 s"}, {"for": 3}, {"choose": 2}):
        with pytest.raises(InputError):
            load_fault(json.dumps(CUT | wrong), TINY)


def test_an_answer_that_comes_before_the_whole_request_is_read(tmp_path: Path) -> None:
    """It needs no body: the server answers and closes while the client still sends one."""

    def answer_at_once(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"index": 3}')

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        server = threading.Thread(target=answer_at_once, args=(listener,))
        server.start()
        with Client(tmp_path / "socket") as client:
            client.ask("DELETE", "/faults/3", "x" * 10_000_000)
            assert client.answer() == (200, {"index": 3})
        server.join()
