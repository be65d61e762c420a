"""What people ask of a run over HTTP while it is under way, checked, and what is answered.

    GET    /faults      every fault so far, as in faults.jsonl
    POST   /faults      inject a fault now: an entry of a timeline without `at`, `for` optional
    GET    /faults/3    one fault
    DELETE /faults/3    heal it now
    POST   /operator    a command, such as {"kind": "deny", "flow": "h0->h4", "ev": "p2/t1_3"}

The kinds of commands are those of `testbed/model/operator/commands.py`.

The status of a wrong request is 400, with its problems: {"errors": [{"where", "found", "expected",
"remedy"}]}. 404: no such fault or path. 409: the fault is not in force, or never heals; or another
of its kind is in force at a place of it, or due there before it heals; or the run has not begun, or
is over. 500: the fault did not take effect, or did not heal: its record, with `error`; or {"error"}
alone if the answering process itself failed. 503: too many requests wait. 504: the host of a
command did not answer in time.

`Access` says who may call. Any page that a browser of this machine shows can send requests to its
loopback, and lead a name of its own there (DNS rebinding). So a request has to have a token, which
only those know who were given the address; a name of the server in `Host`; the server's own origin
in `Origin` if it changes something; and content in JSON, which a page of another origin cannot send
unasked.
"""

import logging
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Protocol

from testbed.model.errors import InputError, Problem, as_answer, did_you_mean, few
from testbed.model.fabric.topology import Topology
from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FaultRecord
from testbed.model.files.reading import parse_request
from testbed.model.files.scenarios import load_fault
from testbed.model.files.validation import validated
from testbed.model.operator.checks import OnFlow
from testbed.model.operator.commands import Command, host_of
from testbed.model.part import Part

MAX_BODY = 1 << 14
"""Bytes of a request: a fault on hundreds of links. To parse as much takes a part of a second."""

_REMEDY = "testbed fault list RUN, or GET /faults, shows the faults"

_NUMBER = re.compile(r"[0-9]{1,9}")

log = logging.getLogger("testbed.faults")

Answer = tuple[HTTPStatus, Any]
"""The status, and the content as the value of JSON."""


class Faults(Protocol):
    """What the HTTP interface needs of a run."""

    def records(self) -> Mapping[int, FaultRecord]:
        """Every fault so far, by its number."""

    def inject(self, fault: Fault) -> FaultRecord | Problem:
        """Inject a fault now and return when it has taken effect; or why it may not be injected."""

    def heal(self, index: int) -> FaultRecord | None:
        """Heal a fault now; None if it is not in force."""


class Simulated(Protocol):
    """A run on a simulated fabric."""

    @property
    def faults(self) -> Faults:
        """Its faults."""

    def operate(self, command: Command, answer: Callable[[dict[str, Any]], None]) -> None:
        """Carry out an operator's command; `answer` is called when it has taken effect."""


class RunRequests:
    def __init__(
        self,
        topology: Topology,
        faults: Faults,
        operate: Callable[[str], Answer] | None = None,
    ) -> None:
        """Answer for one fabric.

        Args:
            topology: the fabric.
            faults: its faults.
            operate: carries out the operator's command of a body; None: others take commands.
        """
        self._topology = topology
        self._faults = faults
        self._operate = operate

    def answer(self, method: str, path: str, body: str = "") -> Answer:
        """Do what a request asks for, or say why not."""
        try:
            if self._operate is not None and is_command(method, path):
                return self._operate(body)
            return self._answer(method, path, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends no run
            return _failed(error)

    def _answer(self, method: str, path: str, body: str) -> Answer:
        path = path.rstrip("/")
        collection, _, number = path.removeprefix("/").partition("/")
        if collection != "faults" or (number and not _NUMBER.fullmatch(number)):
            return refused_request(HTTPStatus.NOT_FOUND, path or "/", "/faults or /faults/N")
        match method, number:
            case "GET", "":
                return HTTPStatus.OK, [
                    record.as_json() for record in self._faults.records().values()
                ]
            case "POST", "":
                return self._inject(body)
            case "GET" | "DELETE", _ if number:
                return self._get_or_heal(method, int(number))
        expected = "GET or DELETE of one fault" if number else "GET or POST of /faults"
        return refused_request(HTTPStatus.METHOD_NOT_ALLOWED, method, expected)

    def _inject(self, text: str) -> Answer:
        try:
            fault = load_fault(text, self._topology)
        except InputError as error:
            return refused(HTTPStatus.BAD_REQUEST, *error.problems)
        injected = self._faults.inject(fault)
        if isinstance(injected, Problem):
            return refused(HTTPStatus.CONFLICT, injected)
        return _with_status(injected, HTTPStatus.CREATED)

    def _get_or_heal(self, method: str, index: int) -> Answer:
        record = self._faults.records().get(index)
        if record is None:
            return refused_request(
                HTTPStatus.NOT_FOUND, f"fault {index}", "the number of a fault", _REMEDY
            )
        if method == "GET":
            return HTTPStatus.OK, record.as_json()
        healed = self._faults.heal(index)
        if healed is None:
            expected = "one that is in force and heals"
            return refused_request(HTTPStatus.CONFLICT, f"fault {index}", expected, _REMEDY)
        return _with_status(healed, HTTPStatus.OK)


def _failed(error: Exception) -> Answer:
    """The answer to a request that could not be dealt with; the log has all of it."""
    log.error("a request failed", exc_info=error)
    return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"}


def _with_status(record: FaultRecord, status: HTTPStatus) -> Answer:
    if record.error is not None:
        status = HTTPStatus.INTERNAL_SERVER_ERROR
    return status, record.as_json()


def refused_request(status: HTTPStatus, found: str, expected: str, remedy: str = "") -> Answer:
    """The answer to a request that is wrong as such."""
    return refused(status, Problem("request", found, expected, remedy))


def refused(status: HTTPStatus, *problems: Problem) -> Answer:
    """The answer to a request that has these problems."""
    return status, as_answer(*problems)


OPERATOR = "/operator"
"""The path of an operator's commands."""


UNDER_WAY: Final = "a run that is under way"
OVER: Final = refused_request(HTTPStatus.CONFLICT, "a run that is over", UNDER_WAY)


def is_command(method: str, path: str) -> bool:
    return method == "POST" and path.rstrip("/") == OPERATOR


Carry = Callable[[Command], dict[str, Any]]
"""Carries a command out; returns its result, or `errors`."""


class _Request(Part):
    command: Command


def load_command(text: str, topology: Topology) -> Command:
    """Read a command that is to be carried out now.

    Raises:
        InputError: it is wrong.
    """
    example = '{"kind": "list", "flow": "h0->h4"}'
    document = parse_request(text, "command", "a command in JSON", example)
    values = document.data["command"]
    if not isinstance(values, dict) or "kind" not in values:
        raise InputError.of(
            "command.kind", "", "what to do: list, deny, allow, replace, probe, ..."
        )
    command = validated(_Request, {"command": values}, document, rtt=topology.round_trip).command
    if command.at:
        expected = "no such key: a command by hand is carried out now"
        raise InputError([document.located(Problem("command.at", str(values["at"]), expected))])
    _check_host(command, topology)
    return command


def _check_host(command: Command, topology: Topology) -> None:
    """Check that the host which is to carry a command out is one of the fabric.

    Raises:
        InputError: it is none.
    """
    hosts = [host.name for host in topology.hosts]
    name = host_of(command)
    if name in hosts:
        return
    if isinstance(command, OnFlow):
        expected = f"a flow between hosts of {topology.name}, such as {hosts[0]}->{hosts[-1]}"
        raise InputError.of("command.flow", command.flow, expected)
    expected = f"a host of {topology.name}: {few(hosts)}"
    raise InputError.of("command.host", name, expected, did_you_mean(name, hosts))


def operate(text: str, topology: Topology, carry: Carry) -> Answer:
    """Carry out the command of a request, or say why not."""
    answers: list[Answer] = []
    begin_command(text, topology, lambda command, done: done(carry(command)), answers.append)
    return answers[0]


def begin_command(
    text: str,
    topology: Topology,
    begin: Callable[[Command, Callable[[dict[str, Any]], None]], None],
    answer: Callable[[Answer], None],
) -> None:
    """Begin with the command of a request; `answer` is called when it is done, or is refused.

    Args:
        text: the command in JSON.
        topology: the fabric.
        begin: begins with it, and hands over its result, or `errors`, when there is one.
        answer: takes the answer to the request.
    """

    def done(content: dict[str, Any]) -> None:
        answer((HTTPStatus.BAD_REQUEST if "errors" in content else HTTPStatus.OK, content))

    try:
        command = load_command(text, topology)
    except InputError as error:
        answer(refused(HTTPStatus.BAD_REQUEST, *error.problems))
    else:
        begin(command, done)


class SimulatedRequests:
    """Answers the requests to one run on a simulated fabric, whose time goes on meanwhile."""

    def __init__(self, topology: Topology, run: Simulated) -> None:
        self._topology, self._run = topology, run
        self._faults = RunRequests(topology, run.faults)

    def begin(self, method: str, path: str, body: str, answer: Callable[[Answer], None]) -> None:
        """Begin with what a request asks for; `answer` is called when it is done, or refused."""
        if not is_command(method, path):
            answer(self._faults.answer(method, path, body))
            return
        try:
            begin_command(body, self._topology, self._run.operate, answer)
        except Exception as error:  # noqa: BLE001 - as above
            answer(_failed(error))


_READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one server.

    Attributes:
        hosts: the values of the header `Host` under which it may be called.
        token: what its paths begin with; None: it only shows what anybody here may see.
        only_pages: whether what changes something has to come from its own page; else programs,
            which send no `Origin`, may do so as well.
    """

    hosts: frozenset[str]
    token: str | None = field(default_factory=lambda: secrets.token_urlsafe(16))
    only_pages: bool = True

    def refusal(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[HTTPStatus, str] | None:
        """Why a request is refused; None if it is not.

        Args:
            method: the request's.
            path: the request's, decoded.
            headers: the request's; names in lower case are found.
        """
        host = headers.get("host", "")
        if host not in self.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, "called by an unknown name"
        if self.token is not None:
            token = path.removeprefix("/").partition("/")[0]
            if not secrets.compare_digest(token.encode(errors="replace"), self.token.encode()):
                return HTTPStatus.NOT_FOUND, "no such page: the address has a token"
        if method in _READING:
            return None
        origin = headers.get("origin")
        if origin != f"http://{host}" and (origin is not None or self.only_pages):
            return HTTPStatus.FORBIDDEN, "asked for by another page"
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not JSON: Content-Type: application/json"
        return None
