"""Requests to inject and heal faults by hand: what is asked for, checked, and what is answered.

    GET    /faults      every fault so far, as in faults.jsonl
    POST   /faults      inject a fault now: an entry of a timeline without `at`, `for` optional
    GET    /faults/3    one fault
    DELETE /faults/3    heal it now

The status of a wrong request is 400, with its problems: {"errors": [{"where", "found", "expected",
"remedy"}]}. 404: no such fault or path. 409: the fault is not in force, or never heals; or another
of its kind is in force at a place of it, or due there before it heals; or the run has not begun, or
is over. 500: the fault did not take effect, or did not heal: its record, with `error`; or {"error"}
alone if the answering process itself failed.
"""

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

from testbed.model.errors import InputError, Problem, as_answer
from testbed.model.fabric.topology import Topology
from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FaultRecord
from testbed.model.files.scenarios import load_fault

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


class FaultRequests:
    """Answers the requests of one run."""

    def __init__(self, topology: Topology, faults: Faults) -> None:
        """Answer for the faults of one fabric."""
        self._topology = topology
        self._faults = faults

    def answer(self, method: str, path: str, body: str = "") -> Answer:
        """Do what a request asks for, or say why not."""
        try:
            return self._answer(method, path, body)
        except Exception as error:  # whatever it is: the client gets it, and the log has all of it
            log.exception("a request failed")
            text = f"{type(error).__name__}: {error}"
            return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": text}

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
