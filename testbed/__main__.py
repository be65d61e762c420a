"""The entry point of `testbed` and `python -m testbed`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current directory, from which nothing is imported

import os
import signal

from testbed.runs import PARENT_VARIABLE


def main() -> None:
    """Run the command line; Ctrl-C while it is loaded ends it without a traceback.

    A run of a campaign ends with its campaign.
    """
    campaign = os.environ.pop(PARENT_VARIABLE, None)
    if campaign is not None:
        from testbed.sandbox.system_calls import die_with_parent  # noqa: PLC0415 - as below

        die_with_parent(int(campaign))
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # otherwise it is ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from testbed import cli  # noqa: PLC0415 - it takes long

    signal.signal(signal.SIGINT, usual)
    cli.main()


if __name__ == "__main__":
    main()
