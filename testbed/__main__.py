"""`testbed`, and `python -m testbed`: loads the command line and runs it."""

import signal


def main() -> None:
    """Run the command line; Ctrl-C while it is still being loaded ends it without a traceback."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # not where it is ignored, as behind nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from testbed import cli  # noqa: PLC0415 - what takes long

    signal.signal(signal.SIGINT, usual)
    cli.main()


if __name__ == "__main__":
    main()
