"""YAML files as plain data that remembers where each part stands.

Stricter than YAML: a key given twice is an error, keys are always text (`on:` is "on", not true),
and dates are text too.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from testbed.model.errors import InputError, Problem
from testbed.model.fabric.names import did_you_mean

MAX_VALUES = 100_000
"""Values in one file, aliases counted where they are used."""

MAX_SHOWN = 60
"""Characters of a value that a message shows."""

REQUEST = "request"
"""What messages call what came in no file."""

_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


def key_path(parent: str, key: str | int) -> str:
    """The path of a part: `timeline[0].at`."""
    if isinstance(key, int):
        return f"{parent}[{key}]"
    return f"{parent}.{key}" if parent else key


@dataclass(frozen=True, slots=True)
class Document:
    """What a YAML file holds, or a request.

    Attributes:
        file: where it was read from; None where it came with a request.
        data: mappings, lists, text, numbers, booleans and None.
        lines: the line of every part, by key path; the whole is "".
        texts: every part as the user wrote it, shortened, by key path.
        origins: where parts come from that the file does not have, by key path.
    """

    file: Path | None
    data: Any
    lines: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """Where the files that it names are looked for first."""
        return self.file.parent if self.file else Path()

    def where(self, path: str) -> str:
        """File, line and key path of a part; the line of what encloses it if it is missing.

        Of a request the key path alone: who sent it knows of no file.
        """
        for changed, origin in self.origins.items():
            if path == changed or path.startswith((f"{changed}.", f"{changed}[")):
                return f"{origin}: {path}"
        known = path
        while known not in self.lines and known:
            known = known[: max(known.rfind("."), known.rfind("["), 0)]
        return _place(self.file, self.lines.get(known, 1), path)


def _place(file: Path | None, line: int, path: str) -> str:
    if file is None:
        return path or REQUEST
    return f"{file}:{line}: {path}" if path else f"{file}:{line}"


def _name(file: Path | None) -> str:
    return REQUEST if file is None else str(file)


def changed(document: Document, path: str, value: Any, origin: str) -> Document:
    """A document with another value at a key path, which `origin` gave.

    Raises:
        InputError: there is no place of that path.
    """
    steps: list[str | int] = [
        int(step[1:-1]) if step.startswith("[") else step
        for step in re.findall(r"\[\d+\]|[^.\[\]]+", path)
    ]
    if not steps or reduce(key_path, steps, "") != path:
        expected = "the path of a key, such as transport.evs or timeline[0].at"
        raise InputError([Problem(origin, path, expected)])
    return replace(
        document,
        data=_with(document.data, steps, value, lambda: _no_place(path, origin)),
        texts={**document.texts, path: str(value)},
        origins={**document.origins, path: origin},
    )


def _no_place(path: str, origin: str) -> InputError:
    return InputError([Problem(origin, path, "the path of an entry that the file has")])


def _with(
    data: Any, steps: Sequence[str | int], value: Any, no_place: Callable[[], InputError]
) -> Any:
    """Data with another value at the end of some steps; mappings that are missing are made."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        if not isinstance(data, list) or step >= len(data):
            raise no_place()
        return [*data[:step], _with(data[step], rest, value, no_place), *data[step + 1 :]]
    if data is not None and not isinstance(data, dict):
        raise no_place()
    inside = data or {}
    return {**inside, step: _with(inside.get(step), rest, value, no_place)}


def parse_value(text: str, origin: str) -> Any:
    """A value as a file would have it, from the command line.

    Raises:
        InputError: it is no YAML.
    """
    try:
        document = _parse(Path(origin), f"value: {text}")
    except yaml.YAMLError:
        raise InputError([Problem(origin, text, "a value in YAML")]) from None
    return document.data["value"]


class _Loader(yaml.SafeLoader):
    """The safe loader, but for dates."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute, as it declares it
        first: [rule for rule in rules if rule[0] != _TIMESTAMP]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class _Reader:
    """Turns the node graph of one file into data, noting places and problems on the way."""

    def __init__(self, loader: _Loader, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self._loader = loader
        self._values = 0
        self._open: list[int] = []
        self._merged: set[int] = set()

    def value(self, node: yaml.Node, path: str) -> Any:
        """The data of one node and of all below it."""
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        self.document.texts[path] = _shown(node)
        self._values += 1
        if self._values > MAX_VALUES or id(node) in self._open:
            raise yaml.MarkedYAMLError(
                None, None, "an alias that repeats without end", node.start_mark
            )
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return dict(self._entries(node, path))
            if isinstance(node, yaml.SequenceNode):
                return [self.value(one, key_path(path, i)) for i, one in enumerate(node.value)]
            return self._scalar(node, path)
        finally:
            self._open.pop()

    def _entries(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[str, Any]]:
        if id(node) not in self._merged:  # an alias leads here again, its `<<` already replaced
            self._merged.add(id(node))
            self._look_for_repeats(node, path)
            self._loader.flatten_mapping(node)
        for key, value in node.value:
            name = self._name(key)
            inner = key_path(path, name)
            self.document.lines[inner] = key.start_mark.line + 1
            yield name, self.value(value, inner)

    def _look_for_repeats(self, node: yaml.MappingNode, path: str) -> None:
        given: dict[str, int] = {}
        for key, _ in node.value:
            name, line = self._name(key), key.start_mark.line + 1
            if key.tag != _MERGE and name in given:
                self.problems.append(
                    Problem(
                        _place(self.document.file, line, key_path(path, name)),
                        f"the key {name} a second time",
                        f"it once (the first is on line {given[name]})",
                        "remove one of the two",
                    )
                )
            given.setdefault(name, line)

    @staticmethod
    def _name(key: yaml.Node) -> str:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(None, None, "a key that is not text", key.start_mark)
        return str(key.value)

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        try:
            return self._loader.construct_object(node)
        except ValueError:  # such as 0x without digits
            self.problems.append(
                Problem(
                    self.document.where(path),
                    self.document.texts[path],
                    "a number that YAML can read",
                    f'write text in quotes: "{node.value}"',
                )
            )
            return None


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


def read_document(file: Path) -> Document:
    """Read a YAML file that holds one mapping.

    Raises:
        InputError: it cannot be read, is not YAML, or holds a key twice.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        found = f"a byte that is not UTF-8 at offset {error.start}"
        remedy = "save it as UTF-8; another program's binary file is none"
        raise InputError([Problem(str(file), found, "a text file in UTF-8", remedy)]) from None
    except IsADirectoryError:
        remedy = "name a file in it"
        raise InputError([Problem(str(file), "a directory", "a YAML file", remedy)]) from None
    except OSError as error:
        found = error.strerror or str(error)
        remedy = did_you_mean(file.name, [near.name for near in file.parent.glob("*.y*ml")])
        raise InputError([Problem(str(file), found.lower(), "a YAML file", remedy)]) from None
    return parse_document(file, text)


def parse_document(file: Path | None, text: str) -> Document:
    """Read YAML, or JSON, that holds one mapping, of a file or of a request (None).

    Raises:
        InputError: it is neither, or holds a key twice.
    """
    name = _name(file)
    try:
        return _parse(file, text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        found = f"no YAML ({' '.join(filter(None, (error.context, error.problem)))})"
        remedy = "check indentation, colons and brackets there and on the line before"
        if "'\\t'" in found:
            remedy = "YAML indents by spaces: put spaces in place of the tab"
        raise InputError([Problem(place, found, "YAML", remedy)]) from None
    except yaml.YAMLError as error:
        found = f"no YAML ({' '.join(str(error).split())})"
        raise InputError([Problem(name, found, "YAML")]) from None
    except RecursionError:
        found = "lists or mappings nested without end"
        raise InputError([Problem(name, found, "YAML of a few levels")]) from None


def _parse(file: Path | None, text: str) -> Document:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        reader = _Reader(loader, Document(file, {}))
        data = None if node is None else reader.value(node, "")
    finally:
        loader.dispose()
    if reader.problems:
        raise InputError(reader.problems)
    if not isinstance(data, dict):
        found = reader.document.texts.get("", "an empty file")
        expected = "a mapping of keys to values"
        remedy = "begin with a copy of one that ships: testbed list"
        raise InputError([Problem(_name(file), found, expected, remedy)])
    return Document(file, data, reader.document.lines, reader.document.texts)
