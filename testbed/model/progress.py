"""The callback by which long work reports its progress."""

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with a description of the current step and the share of the work done, from 0 to 1.

What follows a colon in the description may change at each call.
"""


def where_it_changes(report: Callable[[str], object]) -> Progress:
    """Report a description only when it changes."""
    last = ""

    def progress(text: str, _share: float) -> None:
        nonlocal last
        if text != last:
            last = text
            report(text)

    return progress
