"""YAML files as plain data with the line of each part.

Stricter than YAML: a key given twice is an error, and keys are always text. `scalars` says what is
a number.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from testbed.files.scalars import Loader
from testbed.files.syntax.failure import entry_remedy
from testbed.files.syntax.problems import syntax_problem
from testbed.model.errors import InputError, Problem, raise_any, similar_word
from testbed.model.units import is_in_rtts

MAX_VALUES = 100_000
"""Most values in one file; an alias counts each time it is used."""

MAX_SHOWN = 60
"""Characters of a value that a message shows."""

_PATHS_SHOWN = 8
"""Existing paths that a message about a wrong one names."""

REQUEST = "request"
"""The place that messages name for a document that is no file."""

_REMARK = re.compile(" +#")
_RESERVED = re.compile("[!&]")
"""How a value may begin, of which YAML then drops the first word."""

_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"


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
        origins: the option that gave a part which is not from the file, by key path.
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
        for inserted, origin in self.origins.items():
            made = path not in self.lines and _is_below(inserted, path)  # by that option, too
            if path == inserted or _is_below(path, inserted) or made:
                return f"{origin}: {path}"
        existing = path
        while existing not in self.lines and existing:
            existing = existing[: max(existing.rfind("."), existing.rfind("["), 0)]
        return _place(self.file, self.lines.get(existing, 1), path)

    def located(self, problem: Problem) -> Problem:
        """A problem whose place is a key path, with file and line added, and the text if in RTT."""
        text = self.texts.get(problem.where, "")
        found = f"{text} ({problem.found})" if is_in_rtts(text) else problem.found
        return replace(problem, where=self.where(problem.where), found=found)


def _place(file: Path | None, line: int = 0, path: str = "") -> str:
    """The place that a message names, as exactly as it is known."""
    if file is None:
        return path or REQUEST
    return ": ".join(filter(None, (f"{file}:{line}" if line else str(file), path)))


def with_value(document: Document, path: str, value: Any, origin: str) -> Document:
    """A document with another value at a key path; `origin` is the option that gave it.

    Raises:
        InputError: the document has no such place.
    """
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


def parse_value(text: str, origin: str) -> Any:
    """A value given on the command line, read as in a file.

    Raises:
        InputError: it is not YAML.
    """
    try:
        document = _parse(Path(origin), f"value: {text}")
    except yaml.YAMLError:
        raise InputError.of(origin, text, "a value in YAML") from None
    raise_any(replace(problem, where=origin) for problem in document.problems)
    return document.data["value"]


class _Reader:
    """Turns the nodes of one file into data, and collects lines, texts and problems."""

    def __init__(self, loader: Loader, document: Document, *, as_text: bool) -> None:
        self.document = document
        self._as_text = as_text
        self.problems: list[Problem] = []
        self._loader = loader
        self._values = 0
        self.remarked: set[str] = set()
        self._open: list[int] = []
        self._merged: set[int] = set()

    def value(self, node: yaml.Node, path: str) -> Any:
        """The data of a node and of all nodes below it."""
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        self.document.texts[path] = _shown(node)
        self._values += 1
        if self._values > MAX_VALUES or id(node) in self._open:
            problem = "an alias that repeats without end"
            raise yaml.MarkedYAMLError(None, None, problem, node.start_mark)
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return dict(self._entries(node, path))
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, key_path(path, i)) for i, item in enumerate(node.value)]
            return self._scalar(node, path)
        finally:
            self._open.pop()

    def _entries(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[str, Any]]:
        if id(node) not in self._merged:  # an alias comes here again: its `<<` is already replaced
            self._merged.add(id(node))
            self._check_repeats(node, path)
            self._loader.flatten_mapping(node)
        for key, value in node.value:
            name = self._name(key)
            inner = key_path(path, name)
            self.document.lines[inner] = key.start_mark.line + 1
            yield name, self.value(value, inner)

    def _check_repeats(self, node: yaml.MappingNode, path: str) -> None:
        first_lines: dict[str, int] = {}
        for key, _ in node.value:
            name, line = self._name(key), key.start_mark.line + 1
            if key.tag != _MERGE and name in first_lines:
                where = _place(self.document.file, line, key_path(path, name))
                found = f"the key {name} a second time"
                expected = f"it once (the first is on line {first_lines[name]})"
                self.problems.append(Problem(where, found, expected, "remove one of the two"))
            first_lines.setdefault(name, line)

    @staticmethod
    def _name(key: yaml.Node) -> str:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(None, None, "a key that is not text", key.start_mark)
        return str(key.value)

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        if getattr(node, "style", None) is None and _at(node.end_mark, _REMARK):
            self.remarked.add(path)
        if self._as_text:
            if beginning := _at(node.start_mark, _RESERVED):
                where, found = self.document.where(path), f"a value that begins with {beginning}"
                expected = "a value that begins otherwise: this character is reserved in YAML"
                self.document.cut[path] = Problem(where, found, expected, "put it in quotes")
            return node.value
        try:
            return self._loader.construct_object(node)
        except ValueError:  # such as a number of 5,000 digits
            where, found = self.document.where(path), self.document.texts[path]
            remedy = f'write text in quotes: "{node.value}"'
            self.problems.append(Problem(where, found, "a number that YAML can read", remedy))
            return None


def _at(mark: yaml.Mark, pattern: re.Pattern[str]) -> str:
    """What stands at a place in a file, if it is of a form; else empty."""
    found = None if mark.buffer is None else pattern.match(mark.buffer, mark.pointer)
    return found[0] if found else ""


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping" if node.value else "an empty mapping"
    if isinstance(node, yaml.SequenceNode):
        count = len(node.value)
        return f"a list of {count}" if count else "an empty list"
    text = " ".join(str(node.value).split())
    if len(text) > MAX_SHOWN:
        text = text[:MAX_SHOWN] + "..."
    if node.tag == _TEXT:
        quote = getattr(node, "style", None)
        return f"{quote}{text}{quote}" if quote in {"'", '"'} else text
    return text or "nothing"


SHIPPED = "start from a copy of one that ships: testbed list"
"""The remedy for a file of the wrong kind."""


def read_document(file: Path, *, as_text: bool = False, remedy: str = SHIPPED) -> Document:
    """Read a YAML file that holds a mapping.

    Args:
        file: the file.
        as_text: whether each value is the text as it was written, also of numbers.
        remedy: what to do if the file holds something else.

    Raises:
        InputError: it cannot be read, or is not YAML.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        found = f"a byte that is not UTF-8 at offset {error.start}"
        way = "save it as UTF-8; a binary file cannot be read"
        raise InputError.of(str(file), found, "a text file in UTF-8", way) from None
    except IsADirectoryError:
        raise InputError.of(str(file), "a directory", "a YAML file", "name a file in it") from None
    except OSError as error:
        found = error.strerror or str(error)
        others = {other.stem: other.name for other in file.parent.glob("*.y*ml") if other != file}
        similar = similar_word(file.stem, tuple(others))
        meant = f"did you mean {others[similar]}?" if similar is not None else ""
        raise InputError.of(str(file), found.lower(), "a YAML file", meant) from None
    return parse_document(file, text, as_text=as_text, remedy=remedy)


def parse_document(
    file: Path | None, text: str, *, as_text: bool = False, remedy: str = SHIPPED
) -> Document:
    """Read YAML or JSON that holds a mapping.

    Args:
        file: the file that the text is from; None for a request.
        text: the content.
        as_text: as for `read_document`.
        remedy: as for `read_document`.

    Raises:
        InputError: it is not YAML.
    """
    name = _place(file)
    try:
        return _parse(file, text, as_text=as_text, remedy=remedy)
    except yaml.MarkedYAMLError as error:
        raise InputError([syntax_problem(name, text, error)]) from None
    except yaml.YAMLError as error:
        found = f"invalid YAML ({' '.join(str(error).split())})"
        raise InputError.of(name, found, "YAML", remedy) from None
    except RecursionError:
        found = "lists or mappings nested too deeply"
        raise InputError.of(name, found, "YAML of a few levels") from None


def parse_request(text: str, key: str, form: str, example: str) -> Document:
    """Parse the body of a request as the value of a key, so that errors name places below it.

    Args:
        text: the body, in JSON.
        key: the key.
        form: what the body is to be, such as `a fault in JSON`.
        example: a right body.

    Raises:
        InputError: it is not JSON.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError.of(REQUEST, str(error), form, f"such as {example}") from None
    spaced = text.replace("\t", " ")  # YAML takes no tab; JSON has none within its strings
    return parse_document(None, f'{{"{key}": {spaced}\n}}')


def _parse(
    file: Path | None, text: str, *, as_text: bool = False, remedy: str = SHIPPED
) -> Document:
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        reader = _Reader(loader, Document(file, {}), as_text=as_text)
        data = None if node is None else reader.value(node, "")
    finally:
        loader.dispose()
    if not isinstance(data, dict):
        found = reader.document.texts.get("", "an empty file")
        expected = "a mapping of keys to values"
        first, _, _ = text.strip().partition("\n")
        raise InputError.of(_place(file), found, expected, entry_remedy(first) or remedy)
    return replace(
        reader.document,
        data=data,
        problems=tuple(reader.problems),
        remarked=frozenset(reader.remarked),
    )
