"""On a worker: how what it makes ends when the command that asked for it ends."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_LOOK_S = 2.0
"""How often a worker looks whether the campaign was stopped."""


def is_stopped(campaign: str) -> bool:
    """Whether the campaign was stopped."""
    return bool(_end_of(campaign).is_set())


@contextmanager
def stopped_by(campaign: str, end: Callable[[], object]) -> Iterator[None]:
    """Call a function when the campaign is stopped, during a block."""
    ended, stopped = threading.Event(), _end_of(campaign)

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            if stopped.is_set():
                end()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def call_until_stopped(campaign: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function whose work is done by processes that it starts.

    They are ended when the campaign is stopped.
    """
    thread = threading.get_native_id()
    with stopped_by(campaign, lambda: _end_children(thread)):
        return function(*arguments)


def _end_of(campaign: str) -> Any:
    """The event that stops the campaign."""
    from distributed import Event, get_client

    return Event(campaign, client=get_client())


def _end_children(thread: int) -> None:
    """End the processes that a thread of this process has started."""
    children = Path(f"/proc/self/task/{thread}/children")
    for pid in children.read_text(encoding="ascii").split() if children.exists() else ():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)
