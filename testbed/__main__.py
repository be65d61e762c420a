"""The entry point of `testbed` and `python -m testbed`."""

import signal


def main() -> None:
    """Run the command line; Ctrl-C while it is loaded ends it without a traceback."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # otherwise it is ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from testbed import cli  # noqa: PLC0415 - it takes long

    signal.signal(signal.SIGINT, usual)
    cli.main()


if __name__ == "__main__":
    main()
