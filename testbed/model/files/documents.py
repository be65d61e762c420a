"""The content of a YAML file or of a request: plain data, with the line and text of each part."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from testbed.model.errors import InputError, Problem
from testbed.model.units import is_in_rtts

_PATHS_SHOWN = 8
"""Existing paths that a message about a wrong one names."""

_LONGEST_PATH = 200
"""Characters of a key path that an option gives."""

REQUEST = "request"
"""The place that messages name for a document that is no file."""


def key_path(parent: str, key: str | int) -> str:
    """The path of a part: `timeline[0].at`."""
    if isinstance(key, int):
        return f"{parent}[{key}]"
    return f"{parent}.{key}" if parent else key


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a YAML file, or of a request.

    Attributes:
        file: the file; None for a request.
        data: mappings, lists, text, numbers, booleans and None.
        lines: the line of each part, by key path; the whole document is "".
        texts: each part as the user wrote it, shortened, by key path.
        origins: the option, or the place in another file, that gave a part which is not from the
            file, by key path.
        problems: what is wrong with it as YAML: a key given twice, a number that cannot be read.
        remarked: the key paths of values without quotes that end at a remark (`#`).
        cut: what is wrong with texts of which YAML drops the first word, by key path.
    """

    file: Path | None
    data: Any
    lines: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    remarked: frozenset[str] = frozenset()
    cut: dict[str, Problem] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """The directory to which paths in the document are relative."""
        return self.file.parent if self.file else Path()

    def where(self, path: str) -> str:
        """File, line and key path of a part; for a request only the key path.

        The line of a missing part is that of the part that should contain it.
        """
        for part in _with_those_above(path):
            if part in self.origins:
                return f"{self.origins[part]}: {path}"
        if path not in self.lines:  # an option made it, with what is below
            for inserted, origin in self.origins.items():
                if _is_below(inserted, path):
                    return f"{origin}: {path}"
        existing = next((part for part in _with_those_above(path) if part in self.lines), "")
        return place(self.file, self.lines.get(existing, 1), path)

    def located(self, problem: Problem) -> Problem:
        """A problem whose place is a key path, with file and line added, and the text if in RTT."""
        text = self.texts.get(problem.where, "")
        found = f"{text} ({problem.found})" if is_in_rtts(text) else problem.found
        return replace(problem, where=self.where(problem.where), found=found)


def place(file: Path | None, line: int = 0, path: str = "") -> str:
    """The place that a message names, as exactly as it is known."""
    if file is None:
        return path or REQUEST
    return ": ".join(filter(None, (f"{file}:{line}" if line else str(file), path)))


def with_value(document: Document, path: str, value: Any, origin: str) -> Document:
    """A document with another value at a key path; `origin` is the option that gave it.

    Raises:
        InputError: the document has no such place.
    """
    if len(path) > _LONGEST_PATH:
        raise InputError.of(origin, path, f"the path of a key, {_LONGEST_PATH} characters at most")
    steps: list[str | int] = [
        int(step[1:-1]) if step.startswith("[") else step
        for step in re.findall(r"\[\d+\]|[^.\[\]]+", path)
    ]
    if not steps or reduce(key_path, steps, "") != path:
        expected = "the path of a key, such as transport.evs or timeline[0].at"
        raise InputError.of(origin, path, expected)
    try:
        data = _with(document.data, steps, value)
    except LookupError:
        expected, remedy = _existing_paths(document, path)
        raise InputError.of(origin, path, expected, remedy) from None
    return replace(
        document,
        data=data,
        texts={
            **{at: text for at, text in document.texts.items() if not _is_below(at, path)},
            **_texts(value, path),
        },
        origins={**document.origins, path: origin},
    )


def _with_those_above(path: str) -> Iterator[str]:
    """A key path, then that of each part around it."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def _is_below(path: str, above: str) -> bool:
    return path.startswith((f"{above}.", f"{above}["))


def _texts(value: Any, path: str) -> dict[str, str]:
    """A value of an option and its parts as text, by key path."""
    parts = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    texts = {path: str(value)}
    for key, part in parts:
        texts |= _texts(part, key_path(path, key))
    return texts


def _existing_paths(document: Document, path: str) -> tuple[str, str]:
    """What was expected in place of a path that does not exist, and the one that was meant."""
    bracketed = re.sub(r"\.(\d+)(?=[.\[]|$)", r"[\1]", path)
    remedy = f"did you mean {bracketed}?" if bracketed in document.lines else ""
    within = path
    while within not in document.lines and within:
        within = within[: max(within.rfind("."), within.rfind("["), 0)]
    if within:
        below = [key for key in document.lines if key.startswith((f"{within}.", f"{within}["))]
    else:
        below = list(filter(None, document.lines))
    existing = ", ".join((below or [within])[:_PATHS_SHOWN])
    return f"the path of an entry that the file has, such as {existing}", remedy


def _with(data: Any, steps: Sequence[str | int], value: Any) -> Any:
    """Data with another value at the end of some steps; mappings that are missing are added.

    Raises:
        LookupError: a step is no key of a mapping or number of an entry.
    """
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        if not isinstance(data, list) or step >= len(data):
            raise LookupError
        return [*data[:step], _with(data[step], rest, value), *data[step + 1 :]]
    if data is not None and not isinstance(data, dict):
        raise LookupError
    mapping = data or {}
    return {**mapping, step: _with(mapping.get(step), rest, value)}
