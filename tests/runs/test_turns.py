"""Emulations of campaigns take turns: at once if the machine is free; who waits is next."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed.runs import process
from testbed.runs.process import turn
from tests.waiting import WATCHDOG_S


@pytest.fixture(autouse=True)
def _machine_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EMULATION_LOCK", "QUEUE_LOCK"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(process, name, tmp_path / name)


class _NoTime(threading.Event):
    """For whoever must not wait."""

    def wait(self, timeout: float | None = None) -> bool:
        """Refuse to."""
        raise AssertionError(f"it waits for {timeout} s")


def test_there_is_no_wait_where_no_other_campaign_emulates() -> None:
    """Nor for the next turn of the same one."""
    waits: list[None] = []
    for _ in range(2):
        with turn(_NoTime(), lambda: waits.append(None)) as may_begin:
            assert may_begin
    assert not waits


def test_whoever_waits_comes_before_whoever_had_the_turn_last() -> None:
    order: list[str] = []
    one_waits, never = threading.Event(), threading.Event()

    def emulate(name: str) -> None:
        with turn(never, one_waits.set):
            order.append(name)

    with ThreadPoolExecutor() as threads:
        with turn(never, lambda: None):
            waiting = threads.submit(emulate, "waiting")
            assert one_waits.wait(WATCHDOG_S)
        emulate("had the last turn")
        waiting.result()
    assert order == ["waiting", "had the last turn"]
