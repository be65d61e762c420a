"""Work in a process of its own, which leaves this one as it is.

What analyses a run starts threads, and a process with threads must not fork a sandbox: of several
runs each is made and analysed in a child.
"""

import os
import pickle
import signal
import traceback
from collections.abc import Callable

from testbed.model.errors import RunFailedError, TestbedError
from testbed.model.progress import Progress
from testbed.sandbox.forking import fork


def in_child(work: Callable[[Progress], object], progress: Progress) -> None:
    """Fork, do the work there, relay its progress here.

    Raises:
        TestbedError: what the work raised.
        RunFailedError: it ended in any other way.
    """
    reader, writer = os.pipe()
    pid, let_signals_through = fork()
    if not pid:
        os.close(reader)
        _work(work, writer, let_signals_through)
    os.close(writer)
    ended: TestbedError | None = None
    try:
        with os.fdopen(reader, "rb") as said:
            let_signals_through()
            while True:
                try:
                    message = pickle.load(said)  # noqa: S301 - written by our own child
                except EOFError:
                    break
                if isinstance(message, TestbedError):
                    ended = message
                else:
                    progress(*message)
    except BaseException:
        os.kill(pid, signal.SIGTERM)
        raise
    finally:
        _, status = os.waitpid(pid, 0)
    if ended is not None:
        raise ended
    if status:
        raise RunFailedError(f"the run's process ended early (wait status {status:#x})")


def _work(
    work: Callable[[Progress], object], writer: int, let_signals_through: Callable[[], None]
) -> None:
    """Do the work as the child; never returns."""
    status = 1
    try:
        let_signals_through()
        with os.fdopen(writer, "wb", buffering=0) as out:
            try:
                work(lambda what, done: _tell(out.write, (what, done)))
                status = 0
            except TestbedError as error:
                _tell(out.write, error)
            except Exception as error:  # noqa: BLE001 - told to the parent, whatever it is
                text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
                _tell(out.write, RunFailedError(text))
    finally:
        os._exit(status)


def _tell(write: Callable[[bytes], int | None], message: object) -> None:
    write(pickle.dumps(message))
