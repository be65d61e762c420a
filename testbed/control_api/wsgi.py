"""Faults and operator's commands by hand: HTTP and JSON on a UNIX socket in the run directory.

The requests are those of `faults.py` and `operator.py`; `client.py` sends them.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from testbed.control_api.faults import MAX_BODY, Answer, refused_request
from testbed.control_api.operator import PATH as OPERATOR

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
        """Answer one request."""
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
