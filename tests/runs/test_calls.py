"""How long the end of a campaign waits for what its calls still hand on."""

import threading
from types import SimpleNamespace

import pytest

from testbed.runs.cluster import calls
from testbed.runs.cluster.calls import WorkerCalls


def test_all_that_is_handed_on_has_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    ended = SimpleNamespace(join=lambda: None)

    def hang(seconds: float) -> None:
        clock.append(clock[-1] + seconds)

    made = WorkerCalls.__new__(WorkerCalls)
    made._lock = threading.RLock()
    hanging = [SimpleNamespace(join=hang) for _ in range(3)]
    for name, value in {"_watcher": ended, "_roster": ended, "_delivering": hanging}.items():
        monkeypatch.setattr(made, name, value, raising=False)
    monkeypatch.setattr(calls, "time", SimpleNamespace(monotonic=lambda: clock[-1]), raising=False)
    made.join()
    assert clock[-1] == calls._STOP_S
