"""How the values that a metric has for several flows become one."""

from collections.abc import Callable, Sequence

Value = int | float | None

Combine = Callable[[Sequence[Value]], Value]
"""Makes one value of the values of several flows."""


def total(values: Sequence[Value]) -> Value:
    """The sum of the values that exist."""
    return sum(value for value in values if value is not None)


def greatest(values: Sequence[Value]) -> Value:
    """The greatest of the values that exist, NEVER above all; None if none does."""
    return max((value for value in values if value is not None), default=None)


def least(values: Sequence[Value]) -> Value:
    """The least of the values that exist; None if none does."""
    return min((value for value in values if value is not None), default=None)
