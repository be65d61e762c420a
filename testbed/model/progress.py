"""The callback by which long work reports its progress."""

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with a description of the current step and the share of the work done, from 0 to 1.

What follows a colon in the description may change at each call.
"""
