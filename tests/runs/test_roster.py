"""How long ago the workers of a cluster were heard of."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client as DaskClient
from distributed import LocalCluster

from testbed.results.code_version import package_version
from testbed.runs.cluster.roster import Roster
from tests.waiting import wait_until

ADDRESS = "tcp://127.0.0.1:1"
WORKER: dict[str, Any] = {
    "nthreads": 1,
    "resources": {},
    "local_directory": "/here",
    "last_seen": 0.0,
}


class Client:
    """A scheduler that has these workers, each of which answers."""

    def __init__(self) -> None:
        self.infos = {ADDRESS: WORKER}

    @property
    def scheduler(self) -> SimpleNamespace:
        return SimpleNamespace(identity=lambda **_: {"workers": self.infos})

    def sync(self, function: Callable[..., Any], **arguments: int) -> Any:
        return function(**arguments)

    def run(self, *_: object, **__: object) -> dict[str, Any]:
        return {ADDRESS: {"package": package_version(), "listens": ADDRESS}}


class OtherClient(Client):
    """A scheduler whose worker has another version, which is called with other arguments."""

    def run(self, *called: object, **__: object) -> dict[str, Any]:
        refused = TypeError("describe() got an unexpected keyword argument 'at_start'")
        return {ADDRESS: "0" * 16 if called[0] is package_version else refused}


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

        monkeypatch.setattr(client, "sync", call_and_renew)
        roster = Roster(client, ["simulated"])
        roster.look(lambda: None)
        assert roster.addresses == {worker.address for worker in cluster.workers.values()}
        roster.join()


def test_a_worker_of_another_version_says_so_though_it_is_called_otherwise() -> None:
    roster = Roster(OtherClient(), ["simulated"])
    roster.look(lambda: None)
    roster.join()
    (worker,) = roster.workers
    assert worker.reason("simulated").startswith("it has another version of the testbed (0000")


def test_a_worker_that_is_gone_was_heard_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine that loses power the scheduler says only after a while that it is gone."""
    clock = [0.0]
    client = Client()
    roster = Roster(client, ["simulated"])
    roster.look(lambda: None)
    wait_until(lambda: roster.able("simulated"))
    roster.join()
    monkeypatch.setattr("testbed.runs.cluster.roster.time.monotonic", lambda: clock[-1])
    for now, seen in ((100.0, 1.0), (102.0, 2.0), (104.0, 2.0), (130.0, 2.0)):
        clock.append(now)
        client.infos = {ADDRESS: WORKER | {"last_seen": seen}}
        roster.look(lambda: None)
    assert roster.silence_s("simulated") == 28.0
    client.infos = {}
    clock.append(132.0)
    roster.look(lambda: None)
    assert not roster.able("simulated")
    assert roster.silence_s("simulated") == 30.0
