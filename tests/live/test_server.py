"""Whom the server answers, and what."""

import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from testbed.control_api import MAX_BODY, Access
from testbed.live.page import modules
from testbed.live.server import Site, application
from testbed.live.stream.recorded import recorded_stream
from testbed.live.stream.records import to_line

HOST = "127.0.0.1:8000"
ACCESS = Access(frozenset({HOST}), "secret")
ORIGIN = {"Origin": f"http://{HOST}"}
FAULT = {"kind": "cut", "target": "p0"}


class Asked:
    """Keeps what the run is asked for."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []

    async def request(self, method: str, path: str, body: str) -> tuple[int, Any]:
        self.requests.append((method, path, body))
        return HTTPStatus.CREATED, {"index": 0}


@pytest.fixture(scope="module")
def stream(failure: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("stream") / "stream.ndjson"
    file.write_text("".join(map(to_line, recorded_stream(failure))))
    return file


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def client(stream: Path, asked: Asked) -> Iterator[TestClient]:
    with stream.open("rb") as file:
        site = Site((file.fileno(), -1), ACCESS, asked)
        yield TestClient(application(site), base_url=f"http://{HOST}")


def test_the_page_and_its_files_are_served_under_a_strict_policy(client: TestClient) -> None:
    page = client.get("/secret/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in ("style.css", "vendor/uPlot.iife.min.js", *modules()):
        answer = client.get(f"/secret/page/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/", "/wrong/", "/wrong/events", "/secret", "/secret/page/../server.py", "/secrets/"]
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path, follow_redirects=False).status_code in {404, 307}


def test_another_name_of_this_machine_is_refused(client: TestClient) -> None:
    """A page of another site could lead its name here (DNS rebinding)."""
    assert client.get("/secret/", headers={"Host": "evil.example:8000"}).status_code == 421


def test_a_stream_comes_whole_or_from_where_a_client_was(client: TestClient, stream: Path) -> None:
    lines = stream.read_text().splitlines()
    for last, expected in (({}, lines), ({"Last-Event-ID": "40"}, lines[41:])):
        text = client.get("/secret/events", headers=last).text
        data = [line.removeprefix("data: ") for line in text.splitlines() if line[:5] == "data:"]
        assert data == expected
        ids = [line.removeprefix("id: ") for line in text.splitlines() if line[:3] == "id:"]
        assert ids == [str(json.loads(line)["id"]) for line in data]


def test_a_fault_is_passed_on(client: TestClient, asked: Asked) -> None:
    answer = client.post("/secret/faults", json=FAULT, headers=ORIGIN)
    assert (answer.status_code, answer.json()) == (201, {"index": 0})
    client.delete("/secret/faults/3", headers=ORIGIN)
    client.post("/secret/end", json={}, headers=ORIGIN)
    assert [request[:2] for request in asked.requests] == [
        ("POST", "/faults"),
        ("DELETE", "/faults/3"),
        ("POST", "/end"),
    ]
    assert json.loads(asked.requests[0][2]) == FAULT


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({**ORIGIN, "Content-Type": "text/plain"}, 415),
    ],
)
def test_another_page_changes_nothing(
    client: TestClient, asked: Asked, headers: dict[str, str], status: int
) -> None:
    kind = {"Content-Type": "application/json"}
    answer = client.post("/secret/faults", content=json.dumps(FAULT), headers=kind | headers)
    assert answer.status_code == status
    assert asked.requests == []


def test_a_request_has_a_limit(client: TestClient, asked: Asked) -> None:
    kind = {"Content-Type": "application/json"}
    content = "x" * (MAX_BODY + 1)
    answer = client.post("/secret/faults", content=content, headers=kind | ORIGIN)
    assert answer.status_code == 413
    assert asked.requests == []


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "1e3", "%D9%A3", "%2e%2e", "0%0d%0aX"])
def test_a_number_that_is_none_is_not_found(client: TestClient, asked: Asked, number: str) -> None:
    """Python converts no number of more than 4,300 digits."""
    for path in (f"forks/{number}/events", f"faults/{number}"):
        method = "GET" if path.startswith("forks") else "DELETE"
        answer = client.request(method, f"/secret/{path}", headers=ORIGIN)
        assert answer.status_code in {400, 404, 405}, path
    assert client.get("/secret/events", headers={"Last-Event-ID": number[:9000]}).status_code == 200
    assert asked.requests == []


def test_content_that_is_no_unicode_is_refused(client: TestClient, asked: Asked) -> None:
    kind = {"Content-Type": "application/json"}
    answer = client.post("/secret/faults", content=b'{"kind": "\xff"}', headers=kind | ORIGIN)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["expected"] == "JSON in UTF-8"
    assert asked.requests == []


def test_a_page_that_only_shows_changes_nothing(stream: Path) -> None:
    with stream.open("rb") as file:
        site = Site((file.fileno(), -1), ACCESS, None, "watch")
        client = TestClient(application(site), base_url=f"http://{HOST}")
        assert client.post("/secret/faults", json=FAULT, headers=ORIGIN).status_code == 403
        assert 'data-offer="watch"' in client.get("/secret/").text
