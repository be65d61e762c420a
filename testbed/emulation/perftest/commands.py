"""The commands `write_bw` and `write_lat`, which need what emulates."""

import sys

from testbed.__main__ import leave_current_directory


def write_bw() -> None:
    _run("write_bw")


def write_lat() -> None:
    _run("write_lat")


def _run(program: str) -> None:
    leave_current_directory()
    from testbed import installation  # noqa: PLC0415 - not before
    from testbed.model.errors import ExitStatus  # noqa: PLC0415 - not before

    try:
        from testbed.emulation.perftest import in_host  # noqa: PLC0415 - without the extra it cannot be loaded
    except ModuleNotFoundError as error:
        missing = installation.missing_emulation(error)
        if missing is None:
            raise
        sys.stderr.write(f"error: {missing}\n")
        sys.exit(ExitStatus.MACHINE_CANNOT)
    getattr(in_host, program)()
