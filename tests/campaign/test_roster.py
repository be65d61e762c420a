"""How long ago the workers of a cluster were heard of."""

from typing import Any

import pytest

from testbed.campaign.cluster.roster import Roster
from testbed.results.code_version import package_version
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

    def scheduler_info(self, **_: int) -> dict[str, Any]:
        return {"workers": self.infos}

    def run(self, *_: object, **__: object) -> dict[str, Any]:
        return {ADDRESS: {"package": package_version(), "listens": ADDRESS}}


class OtherClient(Client):
    """A scheduler whose worker has another version, which is called with other arguments."""

    def run(self, *called: object, **__: object) -> dict[str, Any]:
        refused = TypeError("describe() got an unexpected keyword argument 'at_start'")
        return {ADDRESS: "0" * 16 if called[0] is package_version else refused}


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
    monkeypatch.setattr("testbed.campaign.cluster.roster.time.monotonic", lambda: clock[-1])
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
