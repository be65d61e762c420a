"""Faults and operator's commands by hand: HTTP and JSON on a UNIX socket in the run directory.

Both ends: what answers in the controller, and the client outside the sandbox. The requests are
those of `testbed/control_api.py`. Runs of `testbed device` take them, too
(device/paced/run.py): this module needs nothing of the extra `emulate`.
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Protocol

from testbed.control_api import MAX_BODY, OPERATOR, Answer, operate, refused_request
from testbed.installation import not_linux
from testbed.model.closeable import Closeable
from testbed.model.errors import InputError, MachineError, Problem, RunFailedError
from testbed.model.fabric.topology import Topology
from testbed.model.operator.commands import Command, ProbeEvs, host_of
from testbed.model.run_files import layout
from testbed.model.units import NS_PER_S
from testbed.sandbox.system_calls import socket_name

SOCKET = "control.sock"
"""The name of the socket in the run's directory."""

_DIGITS = 18
"""Of a length that is looked at."""

StartResponse = Callable[[str, list[tuple[str, str]]], object]


class LiveControl:
    """The WSGI application."""

    def __init__(self, answer: Callable[[str, str, str], Answer]) -> None:
        """Serve one run; `answer` does what a method, a path and a body ask for."""
        self._carry_out = answer

    def __call__(self, request: Mapping[str, Any], start: StartResponse) -> Iterable[bytes]:
        status, content = self._answer(request)
        start(f"{status.value} {status.phrase}", [("Content-Type", "application/json")])
        return [json.dumps(content).encode() + b"\n"]

    def _answer(self, request: Mapping[str, Any]) -> Answer:
        method, path = request["REQUEST_METHOD"], request["PATH_INFO"]
        has_body = method == "POST" and path.rstrip("/") in {"/faults", OPERATOR}
        body = _body(request) if has_body else ""
        return self._carry_out(method, path, body) if isinstance(body, str) else body


def _body(request: Mapping[str, Any]) -> str | Answer:
    """The body of a request, or the answer to one that has none that can be read."""
    expected = f"a body with its length, up to {MAX_BODY} B"
    length = request.get("CONTENT_LENGTH") or "none"
    if not length.isdecimal():
        status = HTTPStatus.LENGTH_REQUIRED if length == "none" else HTTPStatus.BAD_REQUEST
        return refused_request(status, f"Content-Length: {length}", expected)
    if len(length) > _DIGITS or int(length) > MAX_BODY:
        return refused_request(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{length} B", expected)
    try:
        text: str = request["wsgi.input"].read(int(length)).decode()
    except UnicodeDecodeError as error:
        return refused_request(HTTPStatus.BAD_REQUEST, str(error), "JSON in UTF-8")
    return text


# --------------------------------------------------------------------------------------------------
# The operator's commands by hand: checked here, carried out by the endpoint of their host.
#
# The experiment takes a command to the endpoint and its answer back, as endpoints and controller
# share no channel.


REPLY_TIMEOUT_S = 10.0
"""How long an endpoint may take to answer, beside the deadline of the command itself."""

BEGIN_TIMEOUT_S = 8.0
"""When an endpoint must have begun with a command; later it drops it, for nobody waits for it."""

END_TIMEOUT_S = 0.2
"""How long the end of a run waits for answers to commands that hosts have begun before it."""

_OVER = "a run that is over"


class _Waiting(Protocol):
    """An event that green threads wait for."""

    def wait(self, timeout: float) -> bool:
        """Wait until it is set, at most this long; return whether it is."""

    def set(self) -> None:
        """Wake up who waits."""


class _Pending:
    """A command, or a fault's request, whose answer has not come."""

    def __init__(self, event: _Waiting, *, is_command: bool) -> None:
        self.event = event
        self.is_command = is_command
        self.content: dict[str, Any] | None = None


class OperatorCommands:
    def __init__(
        self,
        topology: Topology,
        send: Callable[[Mapping[str, Any]], None],
        new_event: Callable[[], _Waiting],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Refuse everything until the run begins.

        Args:
            topology: the fabric.
            send: sends a message to the experiment.
            new_event: makes an event that green threads wait for.
            now_ns: reads the clock.
        """
        self._topology = topology
        self._send = send
        self._new_event = new_event
        self._now_ns = now_ns
        self._pending: dict[int, _Pending] = {}
        self._count = 0
        self._begins_ns: int | None = None
        self._is_over = False

    def begin(self, t0_ns: int) -> None:
        """Accept commands from the start of the run on."""
        self._begins_ns = t0_ns

    def end(self) -> None:
        """Accept no more commands; soon those that wait are refused, if no answer has come.

        Faults may still have to heal.
        """
        self._is_over = True
        commands = [pending for pending in self._pending.values() if pending.is_command]
        deadline_ns = self._now_ns() + round(END_TIMEOUT_S * NS_PER_S)
        for pending in commands:
            pending.event.wait(max(deadline_ns - self._now_ns(), 0) / NS_PER_S)
            pending.event.set()

    def answer(self, body: str) -> Answer:
        """Carry out the command of a request, or say why not."""
        if self._is_over or self._begins_ns is None or self._now_ns() < self._begins_ns:
            found = _OVER if self._is_over else "a run that has not begun"
            return refused_request(HTTPStatus.CONFLICT, found, "a run that is under way")
        try:
            return operate(body, self._topology, self._carry)
        except TimeoutError as error:
            return HTTPStatus.GATEWAY_TIMEOUT, {"error": str(error)}

    def set_busy(self, host: str, state: Mapping[str, Any]) -> dict[str, Any]:
        """Make the endpoint of a host so busy (`Impairment.busy`); what it answers.

        Raises:
            TimeoutError: it has not answered.
        """
        return self._ask(host, {"busy": state}, REPLY_TIMEOUT_S)

    def _carry(self, command: Command) -> dict[str, Any]:
        values = command.model_dump(mode="json", by_alias=True)
        patience_s = REPLY_TIMEOUT_S
        if isinstance(command, ProbeEvs) and command.within is not None:
            patience_s += command.within / NS_PER_S
        return self._ask(host_of(command), {"command": values}, patience_s)

    def _ask(self, host: str, message: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
        self._count += 1
        number = self._count
        is_command = "command" in message
        pending = self._pending[number] = _Pending(self._new_event(), is_command=is_command)
        until_ns = self._now_ns() + round(BEGIN_TIMEOUT_S * NS_PER_S)
        self._send({"operate": number, "host": host, "until_ns": until_ns, **message})
        pending.event.wait(patience_s)
        del self._pending[number]
        if pending.content is None:
            ended = is_command and self._is_over
            reason = _OVER if ended else "it may be busy; what it has not begun, it drops"
            raise TimeoutError(f"{host} has not answered: {reason}")
        return pending.content

    def receive(self, number: int, content: dict[str, Any]) -> None:
        pending = self._pending.get(number)
        if pending is not None:
            pending.content = content
            pending.event.set()


TIMEOUT_S = 10.0
"""How long to wait for the controller to accept a connection, and to inject or heal a fault."""


def socket_of(run: Path) -> Path:
    """The socket of a run that is under way; of a scenario's directory that of its newest one.

    Raises:
        InputError: nothing runs there, or what does belongs to another user.
        MachineError: nothing can run there: this is not Linux.
    """
    if (elsewhere := not_linux()) is not None:
        raise MachineError(*elsewhere)
    for path in (run / SOCKET, *sorted(run.glob(f"*/{SOCKET}"), reverse=True)):
        try:
            _connected(path).close()
        except PermissionError:
            expected = "a run of yours: only its user, and root, may command it"
            raise InputError.of("RUN", str(path.parent), expected, "sudo") from None
        except OSError:
            continue
        return path
    found = f"{run}, a run that is over" if (run / layout.RUN).exists() else str(run)
    expected = "the directory of a run that is under way (testbed run, device, shell)"
    raise InputError(
        [Problem("RUN", found, expected, "the run, or the prompt, shows it at its beginning")]
    )


def _connected(path: Path) -> socket.socket:
    with socket_name(path) as name:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(TIMEOUT_S)
            connection.connect(name)
        except OSError:
            connection.close()
            raise
    return connection


class Client(Closeable):
    """Calls the HTTP interface of one run's controller, once."""

    def __init__(self, path: Path) -> None:
        self._http = HTTPConnection("localhost", timeout=TIMEOUT_S)
        self._http.sock = _connected(path)

    def close(self) -> None:
        self._http.close()

    def faults(self) -> list[dict[str, Any]]:
        return self._request("GET", "/faults")

    def inject(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Inject a fault, given as an entry of a timeline; returns its record.

        Raises:
            InputError: it is wrong.
            RunFailedError: it did not take effect.
        """
        return self._request("POST", "/faults", entry)[0]

    def heal(self, index: int) -> dict[str, Any]:
        """Heal a fault; returns its record.

        Raises:
            InputError: no fault of that number is in force.
            RunFailedError: it did not heal.
        """
        return self._request("DELETE", f"/faults/{index}")[0]

    def operate(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out an operator's command on EVs or ports; returns its result.

        Raises:
            InputError: it is wrong, or the run is not under way.
            RunFailedError: the host did not answer.
        """
        self._wait_as_long_as_the_controller()
        return self._request("POST", OPERATOR, command)[0]

    def fileno(self) -> int:
        """The descriptor that can be read when `answer` need not wait."""
        descriptor: int = self._http.sock.fileno()
        return descriptor

    def ask(self, method: str, path: str, body: str) -> None:
        """Pass a request on as it is.

        Where that needs no body, it may be answered, and the connection closed, before the body is
        sent.

        Raises:
            RunFailedError: nobody takes it.
        """
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._http.request(method, path, body.encode() or None)
        except (OSError, HTTPException) as error:
            raise _silent(error) from error

    def answer(self) -> tuple[int, Any]:
        """The status and the content of the answer to what was asked.

        Raises:
            RunFailedError: nobody answers.
        """
        try:
            response = self._http.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise _silent(error) from error

    def _wait_as_long_as_the_controller(self) -> None:
        """Have no timeout here: only the controller knows how long a batch of probes may take.

        It answers soon after the deadline of the batch, whether the host did or not. If it dies,
        the connection ends.
        """
        self._http.sock.settimeout(None)

    def _request(self, method: str, path: str, content: object = None) -> list[dict[str, Any]]:
        """Send a request; return the records in its reply.

        Raises what the public methods raise.
        """
        self.ask(method, path, "" if content is None else json.dumps(content))
        status, reply = self.answer()
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise RunFailedError(str(reply.get("error", reply)))
        if status >= HTTPStatus.BAD_REQUEST:
            raise InputError([Problem(**problem) for problem in reply["errors"]])
        return reply if isinstance(reply, list) else [reply]


def _silent(error: Exception) -> RunFailedError:
    return RunFailedError(f"the controller of the run does not reply: {error}")


def heal_all(path: Path) -> list[dict[str, Any]]:
    """Heal every fault that is in force and heals, over the socket of a run; returns the records.

    Raises:
        RunFailedError: one did not heal.
    """
    with Client(path) as client:
        records = client.faults()
    healed = []
    for record in records:
        if record["effective_ns"] is not None and record["healed_ns"] is None:
            with Client(path) as client, contextlib.suppress(InputError):  # healed, or never does
                healed.append(client.heal(record["index"]))
    return healed
