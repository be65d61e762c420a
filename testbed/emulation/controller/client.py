"""The client of the live control: injects and heals faults from outside the sandbox.

A UNIX socket in the file system can be reached from any network namespace; the sandbox's TCP ports
cannot.
"""

import contextlib
import json
import socket
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from testbed.control_api import OPERATOR
from testbed.emulation.controller.live import SOCKET
from testbed.installation import not_linux
from testbed.model.closeable import Closeable
from testbed.model.errors import InputError, MachineError, Problem, RunFailedError
from testbed.model.run_files import layout
from testbed.sandbox.system_calls import socket_name

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
