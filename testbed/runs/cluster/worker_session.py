"""What a worker of `--on local` loads when it starts (Dask's preload), also after it was lost."""

import os

from testbed.interpreter import NEUTRAL


def dask_setup(_worker: object) -> None:
    """Leave the session of the terminal and its directory.

    Ctrl-C reaches a worker by the command.

    The command has it end its runs in order; the signal itself would end the worker.
    """
    os.setsid()
    os.chdir(NEUTRAL)
