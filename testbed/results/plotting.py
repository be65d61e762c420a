"""Loads Matplotlib, whatever the user has set for it; to be imported before anything of it.

Matplotlib reads its settings when it is imported, and a file that is no UTF-8 or a backend that
does not exist ends that: MATPLOTLIBRC, MPLBACKEND, `matplotlibrc` in the current directory or in
the user's. So it is imported without them. They are applied afterwards, if they can be, for figures
of a program's own. Those of the testbed have its own style.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext, suppress
from pathlib import Path

from testbed.model.errors import MachineError
from testbed.model.file_names import is_there

_FILE, _BACKEND = "MATPLOTLIBRC", "MPLBACKEND"


@contextmanager
def _without_settings() -> Iterator[None]:
    before = {name: os.environ.pop(name, None) for name in (_FILE, _BACKEND)}
    os.environ[_FILE] = os.devnull
    try:
        # The one in the current directory would come first.
        with chdir(Path(sys.prefix).anchor) if is_there(Path(_FILE.lower())) else nullcontext():
            yield
    finally:
        del os.environ[_FILE]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def _load() -> None:
    if "matplotlib" in sys.modules:
        return
    with _without_settings():
        try:
            import matplotlib as mpl  # noqa: PLC0415 - only now

            mpl.get_cachedir()
        except OSError as error:  # it keeps which fonts there are
            what = "there is no directory in which Matplotlib can keep its files"
            remedy = "name one that can be written to: MPLCONFIGDIR=DIR or TMPDIR=DIR"
            raise MachineError(what, remedy) from error
    with suppress(ValueError, OSError):  # Matplotlib says what is wrong with the file
        settings = dict(mpl.rc_params())
        # Where nobody has chosen a backend, Matplotlib would load pyplot to find one that works.
        if not isinstance(settings["backend"], str):
            del settings["backend"]
        mpl.rcParams.update(settings)
        if backend := os.environ.get(_BACKEND):
            mpl.rcParams["backend"] = backend


_load()
