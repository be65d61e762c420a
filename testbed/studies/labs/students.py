"""Keys and seeds: what makes one student's lab differ from another's."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from unicodedata import normalize

from testbed.model.errors import InputError
from testbed.model.scenario import MAX_SEED
from testbed.studies.labs.lab import Computed, Lab

KEY_DIGITS = 16
_CHECK_DIGITS = 3
"""The last digits of a key: they fit the others and the student's name."""

MAX_NAME = 100
"""Characters of a student's name."""

_LEAST_SECRET = 16


def student_key(course_key: bytes, student: str) -> str:
    """The key of a student: only who has the course key can compute it (HMAC-SHA256).

    It is the same for each spelling of a name.
    """
    name = plain_name(student)
    return _with_check(hmac.new(course_key, name.encode(), hashlib.sha256).hexdigest(), name)


def plain_name(name: str) -> str:
    """A name as it is compared: in lower case, with single blanks, each letter one code (NFKC)."""
    return " ".join(normalize("NFKC", name).lower().split())


def own_key() -> str:
    """A key for somebody who works alone."""
    return _with_check(secrets.token_hex(KEY_DIGITS), "")


def _with_check(digits: str, name: str) -> str:
    """The key that begins with these digits: with check digits for the name."""
    given = digits[: KEY_DIGITS - _CHECK_DIGITS]
    return given + hashlib.sha256(f"{given}/{name}".encode()).hexdigest()[:_CHECK_DIGITS]


def checked_key(key: str, student: str) -> str:
    """A key as a student typed it.

    Raises:
        InputError: it is no key, or that of another name.
    """
    cleaned = key.strip().lower()
    if len(cleaned) != KEY_DIGITS or set(cleaned) - set("0123456789abcdef"):
        expected = f"{KEY_DIGITS} hexadecimal digits"
        remedy = "copy the key that your instructor gave you; without a course leave --key out"
        raise InputError.of("--key", key, expected, remedy)
    if not fits(cleaned, student):
        remedy = "copy both as your instructor gave them to you: one of them is mistyped"
        raise InputError.of("--key", key, f"the key of --student {student}", remedy)
    return cleaned


def fits(key: str, student: str) -> bool:
    """Whether the last digits of a key fit the others and the student's name."""
    return key == _with_check(key, plain_name(student))


def checked_name(where: str, name: str) -> str:
    """A student's name.

    Raises:
        InputError: it is empty, too long for a table of grades, or cannot be printed.
    """
    if name.strip() and len(name) <= MAX_NAME and name.isprintable():
        return name
    long = len(name) > MAX_NAME
    found = f"{name[:20]}..., {len(name)} characters" if long else name or "nothing"
    raise InputError.of(where, found, f"a name of 1 to {MAX_NAME} printable characters")


@contextmanager
def may_read() -> Iterator[None]:
    """Read files of a student in a block.

    Raises:
        InputError: one cannot be read, such as a link to a file that the student may not read.
    """
    try:
        yield
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        raise InputError.of(str(error.filename), found, "a file that you may read") from None


def seed_of(key: str, lab: str) -> int:
    """The seed of a student's runs in a lab."""
    digest = hashlib.sha256(f"{key}/{lab}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % MAX_SEED + 1


def read_course_key(file: Path) -> bytes:
    """The course key in a file: any text that is long enough, such as of `openssl rand -hex 32`.

    Raises:
        InputError: it cannot be read, or is too short.
    """
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        remedy = "make one: openssl rand -hex 32 > course.key"
        found = (error.strerror or str(error)).lower()
        raise InputError.of("--course-key", f"{file}: {found}", "a file", remedy) from None
    if len(key) < _LEAST_SECRET:
        expected = f"a key of at least {_LEAST_SECRET} characters"
        raise InputError.of("--course-key", f"{len(key)} characters in {file}", expected)
    return key


# --------------------------------------------------------------------------------------------------
# What a student's seed decides: links, hosts, times.


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
