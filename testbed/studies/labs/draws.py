"""What a student's seed decides: links, hosts, times."""

import re
from collections.abc import Callable, Mapping
from random import Random
from types import ModuleType
from typing import Any

from testbed.studies.labs.lab import Computed, Lab

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

_ATTEMPTS = 200
"""How often values are drawn until the lab's scenarios are as they should be."""


def placeholders(value: object) -> set[str]:
    """The names for which drawn values stand in a text."""
    if isinstance(value, list | tuple):
        return set().union(*map(placeholders, value))
    return set(_PLACEHOLDER.findall(value)) if isinstance(value, str) else set()


def filled(value: Any, drawn: Mapping[str, Any]) -> Any:
    """A value in which `{name}` is replaced; a text of `{name}` alone becomes what was drawn."""
    if isinstance(value, list | tuple):
        return [filled(part, drawn) for part in value]
    if not isinstance(value, str):
        return value
    whole = _PLACEHOLDER.fullmatch(value)
    if whole is not None and whole[1] in drawn:
        return drawn[whole[1]]
    return _PLACEHOLDER.sub(lambda match: _shown(drawn.get(match[1], match[0])), value)


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def draw(
    lab: Lab,
    seed: int,
    functions: ModuleType | None,
    fits: Callable[[Mapping[str, Any]], bool],
) -> dict[str, Any]:
    """Draw a lab's values from a seed.

    Args:
        lab: the lab.
        seed: the student's.
        functions: the lab's `figures.py`, for values that are computed.
        fits: whether values make a good lab; otherwise others are drawn from the same seed.
    """
    drawn: dict[str, Any] = {"seed": seed}
    for attempt in range(_ATTEMPTS):
        random = Random(f"{seed}/{attempt}")  # noqa: S311 - repeatable chance
        drawn = {"seed": seed}
        for name, choice in lab.draw.items():
            if isinstance(choice, Computed):
                drawn[name] = getattr(functions, choice.call)(drawn)
            else:
                drawn[name] = filled(
                    choice if isinstance(choice, str) else random.choice(choice), drawn
                )
        if not lab.draw or fits(drawn):
            break
    return drawn
