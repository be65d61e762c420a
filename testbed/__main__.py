"""The entry point of `testbed` and `python -m testbed`."""

# Nothing may be imported before the current directory is left, not even `pathlib`.
# ruff: noqa: PTH109, PTH120

import os
import sys


def leave_current_directory() -> None:
    """Import nothing from the current directory, if it is an entry of PYTHONPATH, as an empty one.

    What Python imports before this module is beyond its reach.
    """
    entries = os.environ.get("PYTHONPATH")
    if not entries or sys.flags.ignore_environment:
        return
    try:
        here = os.path.realpath(os.getcwd())
    except FileNotFoundError:  # it is deleted
        return
    for path in map(os.path.abspath, entries.split(os.pathsep)):
        if os.path.realpath(path) == here and path in sys.path:
            sys.path.remove(path)
            if os.path.dirname(os.path.dirname(os.path.realpath(__file__))) == here:
                sys.path.append(path)  # a checkout, in which the testbed itself is


def main() -> None:
    """Run the command line; Ctrl-C while it is loaded ends it without a traceback.

    With `--job` alone, `run` and `simulate` make a run that another process of the testbed wants.
    """
    leave_current_directory()
    import signal  # noqa: PLC0415 - not before

    if sys.argv[1:] in (["run", "--job"], ["simulate", "--job"]):
        from testbed.runs.process import serve  # noqa: PLC0415 - as below

        sys.exit(serve(sys.argv[1]))
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # otherwise it is ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from testbed import cli  # noqa: PLC0415 - it takes long

    signal.signal(signal.SIGINT, usual)
    cli.main()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current directory, because of -m
    main()
