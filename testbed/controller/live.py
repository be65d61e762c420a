"""Faults and operator's commands by hand: HTTP and JSON on a UNIX socket in the run directory.

The requests are those of `testbed/control_api/faults.py` and `operator.py`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from testbed.control_api.faults import (
    MAX_BODY,
    Answer,
    FaultRequests,
    Faults,
    refused_request,
)
from testbed.control_api.operator import PATH as OPERATOR
from testbed.model.fabric.topology import Topology

SOCKET = "control.sock"
"""The name of the socket in the run's directory."""

StartResponse = Callable[[str, list[tuple[str, str]]], object]


class LiveControl:
    """The WSGI application."""

    def __init__(
        self, topology: Topology, faults: Faults, operate: Callable[[str], Answer]
    ) -> None:
        """Serve one fabric; `operate` carries out the operator's command of a request's body."""
        self._requests = FaultRequests(topology, faults)
        self._operate = operate

    def __call__(self, request: Mapping[str, Any], start: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        status, content = self._answer(request)
        start(f"{status.value} {status.phrase}", [("Content-Type", "application/json")])
        return [json.dumps(content).encode() + b"\n"]

    def _answer(self, request: Mapping[str, Any]) -> Answer:
        method, path = request["REQUEST_METHOD"], request["PATH_INFO"]
        place = path.rstrip("/")
        if method != "POST" or place not in {"/faults", OPERATOR}:
            return self._requests.answer(method, path)
        if "CONTENT_LENGTH" not in request:
            return refused_request(
                HTTPStatus.LENGTH_REQUIRED, "no Content-Length", "a body with its length"
            )
        size = int(request["CONTENT_LENGTH"])
        if size > MAX_BODY:
            status, expected = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"up to {MAX_BODY} B"
            return refused_request(status, f"{size} B", expected)
        body = request["wsgi.input"].read(size).decode(errors="replace")
        if place == OPERATOR:
            return self._operate(body)
        return self._requests.answer(method, path, body)
