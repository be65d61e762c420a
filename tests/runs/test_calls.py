"""Which workers a cluster has, what they say of themselves, and when they were heard of."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client as DaskClient
from distributed import LocalCluster

from testbed.runs.cluster import calls as module
from testbed.runs.cluster.calls import Worker, WorkerCalls
from tests.waiting import wait_until

ADDRESS = "tcp://127.0.0.1:1"
INFO: dict[str, Any] = {
    "nthreads": 4,
    "resources": {"emulation": 1},
    "local_directory": "/here",
    "last_seen": 0.0,
}
SAID = {"directory": "/here", "host": "n1"}


class Client:
    """A scheduler that has these workers, and what they said."""

    def __init__(self) -> None:
        self.infos = {ADDRESS: INFO}
        self.said = [SAID]

    @property
    def scheduler(self) -> SimpleNamespace:
        return SimpleNamespace(identity=lambda **_: {"workers": self.infos})

    def sync(self, function: Callable[..., Any], **arguments: int) -> Any:
        return function(**arguments)

    def get_events(self, _topic: str) -> list[tuple[float, dict[str, str]]]:
        return [(0.0, said) for said in self.said]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(module, "_in_background", lambda *_: None)
    monkeypatch.setattr("distributed.as_completed", lambda **_: None)
    return Client()


def _calls(client: Any) -> WorkerCalls:
    client.id, client.loop = "id", None
    client.run_on_scheduler = client.register_plugin = None
    return WorkerCalls(client, ["simulated"])


@pytest.mark.parametrize(
    ("said", "emulated", "simulated"),
    [
        (SAID, "", ""),
        (None, "it has not answered yet", "it has not answered yet"),
        (SAID | {"unfit": {"emulated": "it lacks: root"}}, "it lacks: root", ""),
        (SAID | {"error": "another version"}, "another version", "another version"),
    ],
)
def test_a_worker_says_why_it_makes_no_runs(
    said: dict[str, Any] | None, emulated: str, simulated: str
) -> None:
    worker = Worker.of(ADDRESS, INFO, said)
    assert (worker.reason("emulated"), worker.reason("simulated")) == (emulated, simulated)
    assert worker.offers == {"emulated": 1, "simulated": 4}
    no_resource = Worker.of(ADDRESS, INFO | {"resources": {}}, SAID)
    assert no_resource.reason("emulated") == "it does not offer the resource 'emulation'"


def test_a_worker_at_the_address_of_an_earlier_one_is_asked(client: Client) -> None:
    calls = _calls(client)
    calls.look()
    assert [*calls.able("simulated")] == [ADDRESS]
    client.infos = {ADDRESS: INFO | {"local_directory": "/other"}}
    calls.look()
    assert not calls.able("simulated")


def test_more_is_required_of_workers_that_come_later(client: Client) -> None:
    calls = _calls(client)
    calls.look()
    calls.require(lambda _: "too slow")
    client.infos["tcp://127.0.0.1:2"] = INFO | {"local_directory": "/late"}
    client.said.append({"directory": "/late", "host": "n2"})
    calls.look()
    assert [*calls.able("emulated")] == [ADDRESS]
    assert len(calls.able("simulated")) == 2


def test_a_worker_that_is_gone_was_heard_of_before(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a machine that loses power the scheduler says only after a while that it is gone."""
    clock = [0.0]
    calls = _calls(client)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
    for now, seen in ((100.0, 1.0), (102.0, 2.0), (104.0, 2.0), (130.0, 2.0)):
        clock.append(now)
        client.infos = {ADDRESS: INFO | {"last_seen": seen}}
        calls.look()
    client.infos = {}
    clock.append(132.0)
    calls.look()
    assert not calls.able("simulated")
    assert calls._heard["simulated"] == 102.0


def test_workers_stay_known_while_the_client_renews_what_it_keeps_of_its_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dask's client does that every 2 s, and keeps no workers then."""
    options: dict[str, Any] = {"processes": False, "dashboard_address": None}
    with LocalCluster(n_workers=1, **options) as cluster, DaskClient(cluster) as client:
        call = client.sync

        def call_and_renew(*arguments: Any, **options: Any) -> Any:
            answer = call(*arguments, **options)
            call(client._update_scheduler_info)
            return answer

        calls = WorkerCalls(client, ["simulated"])
        with monkeypatch.context() as renewed:
            renewed.setattr(client, "sync", call_and_renew)
            wait_until(lambda: (calls.look(), calls.workers)[1])  # type: ignore[func-returns-value]
            assert {*calls.workers} == {worker.address for worker in cluster.workers.values()}
        calls.stop()
