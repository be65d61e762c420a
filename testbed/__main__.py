"""The entry point of `testbed` and `python -m testbed`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current directory, from which nothing is imported

import signal


def main() -> None:
    """Run the command line; Ctrl-C while it is loaded ends it without a traceback.

    With `--job` alone, `run` and `simulate` make a run that another process of the testbed wants.
    """
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
    main()
