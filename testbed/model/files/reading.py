"""Reads YAML files and requests.

Stricter than YAML: a key given twice is an error, and keys are always text. `scalars` says what is
a number.
"""

import errno
import json
import math
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from testbed.model.errors import InputError, Problem, raise_any, similar_word
from testbed.model.files.documents import REQUEST, Document, key_path, place
from testbed.model.files.scalars import TAGGED, Loader, joined, no_text
from testbed.model.files.syntax.failure import entry_remedy
from testbed.model.files.syntax.problems import syntax_problem

MAX_CHARACTERS = 4 << 20
"""Most characters of one file."""

MAX_VALUES = 100_000
"""Most values in one file; an alias and what a merge adds count each time they are used."""

MAX_KEY = 200
"""Most characters of a key."""

MAX_LEVELS = 40
"""Most mappings and lists within one another."""

MOST_OF_A_PIPE = 1 << 24
"""Bytes that are read of what is no file."""

MAX_SHOWN = 60
"""Characters of a value that a message shows."""

SHIPPED = "start from a copy of one that ships: testbed list"
"""The remedy for a file of the wrong kind."""

_REMARK = re.compile(" +#")
_RESERVED = re.compile("[!&]")
"""How a value may begin, of which YAML then drops the first word."""

_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"


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
        text = _kept_text(file) if file.is_file() or not file.exists() else _read_once(file)
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


def _kept_text(file: Path) -> str:
    """The text of a file, no more of it than can be used."""
    with file.open(encoding="utf-8") as stream:
        return stream.read(MAX_CHARACTERS + 1)


@lru_cache
def _read_once(file: Path) -> str:
    """The text of a pipe, such as the shell's `<(...)`, which gives it only once.

    Raises:
        OSError: it cannot be read, or does not end.
    """
    with file.open("rb") as stream:
        content = stream.read(MOST_OF_A_PIPE + 1)
    if len(content) > MOST_OF_A_PIPE:
        raise OSError(errno.EFBIG, f"more than {MOST_OF_A_PIPE} bytes that are no file")
    return content.decode()


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
    name = place(file)
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


_PAIR = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..")
"""A character beyond 16 bits in JSON, which YAML would read as two."""


def require_json(text: str, form: str, remedy: str = "") -> None:
    """Check that the body of a request is JSON whose numbers are finite and whose text is Unicode.

    Args:
        text: the body.
        form: what it is to be, such as `a fault in JSON`.
        remedy: what to do.

    Raises:
        InputError: it is not.
    """

    def finite(number: str) -> float:
        if not math.isfinite(value := float(number)):
            raise ValueError(f"{number[:40]} is no finite number")
        return value

    try:
        value = json.loads(text, parse_float=finite, parse_constant=finite)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError.of(REQUEST, "half of a surrogate pair", form, remedy) from None
    except RecursionError:
        raise InputError.of(REQUEST, "JSON of too many levels", form, remedy) from None
    except ValueError as error:
        raise InputError.of(REQUEST, str(error), form, remedy) from None


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
    require_json(text, form, f"such as {example}")
    paired = _PAIR.sub(lambda pair: str(json.loads(f'"{pair[0]}"')), text)
    spaced = paired.replace("\t", " ")  # YAML takes no tab; JSON has none within its strings
    return parse_document(None, f'{{"{key}": {spaced}\n}}')


def parse_value(text: str, origin: str) -> Any:
    """A value given on the command line, read as in a file.

    Raises:
        InputError: it is not YAML.
    """
    try:
        document = _parse(Path(origin), f"value: {text}")
    except (yaml.YAMLError, RecursionError):
        raise InputError.of(origin, text, "a value in YAML") from None
    except InputError as error:
        raise InputError([replace(problem, where=origin) for problem in error.problems]) from None
    raise_any(replace(problem, where=origin) for problem in document.problems)
    return document.data["value"]


def _parse(
    file: Path | None, text: str, *, as_text: bool = False, remedy: str = SHIPPED
) -> Document:
    """Parse a text as `parse_document` does, with the errors of PyYAML."""
    if len(text) > MAX_CHARACTERS:
        found = f"more than {MAX_CHARACTERS:,} characters"
        raise InputError.of(place(file), found, "a file of a person's size")
    return deepcopy(_parsed(file, text, as_text, remedy))


@lru_cache(maxsize=128)
def _parsed(file: Path | None, text: str, as_text: bool, remedy: str) -> Document:
    """The document of a text, of which callers get copies.

    It is kept, as many runs have the same files, and parsing takes most of the time to load one.
    """
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
        raise InputError.of(place(file), found, expected, entry_remedy(first) or remedy)
    return replace(
        reader.document,
        data=data,
        problems=tuple(reader.problems),
        remarked=frozenset(reader.remarked),
    )


_Entries = dict[str, tuple[yaml.Node, yaml.Node]]
"""Entries of a mapping, as nodes, by their names."""


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
        self._merged: dict[int, _Entries] = {}
        self._merging: list[int] = []

    def value(self, node: yaml.Node, path: str) -> Any:
        """The data of a node and of all nodes below it."""
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        self.document.texts[path] = _shown(node)
        self._count(node, 1 + len(path) // MAX_KEY)
        if id(node) in self._open:
            raise self._refused(node, "an alias within what it stands for", "one of a part above")
        if len(self._open) > MAX_LEVELS:
            expected = f"{MAX_LEVELS} at most"
            raise self._refused(node, "lists or mappings nested too deeply", expected)
        if node.tag == TAGGED and not self._as_text:
            where, remedy = self.document.where(path), "put text in quotes; leave a tag out"
            self.problems.append(Problem(where, "a tag", "a value that begins without !", remedy))
            return None
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return dict(self._entries(node, path))
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, key_path(path, i)) for i, item in enumerate(node.value)]
            return self._scalar(node, path)
        finally:
            self._open.pop()

    def _count(self, node: yaml.Node, values: int) -> None:
        """Count values of the document, which a short file may repeat without end."""
        self._values += values
        if self._values > MAX_VALUES:
            expected = "fewer; an alias and what << adds count each time"
            raise self._refused(node, f"more than {MAX_VALUES:,} values", expected)

    def _refused(self, node: yaml.Node, found: str, expected: str) -> InputError:
        where = place(self.document.file, node.start_mark.line + 1)
        return InputError.of(where, found, expected)

    def _entries(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[str, Any]]:
        for key, value in self._flat(node, path).values():
            name = self._name(key)
            inner = key_path(path, name)
            self.document.lines[inner] = key.start_mark.line + 1
            yield name, self.value(value, inner)

    def _flat(self, node: yaml.MappingNode, path: str) -> _Entries:
        """The entries of a mapping by name, with those that `<<` adds: its own are stronger.

        Each node is merged once, however often an alias stands for it.
        """
        if (known := self._merged.get(id(node))) is not None:
            return known
        if len(self._merging) > MAX_LEVELS or id(node) in self._merging:
            raise self._refused(node, "<< nested too deeply", f"{MAX_LEVELS} at most")
        self._merging.append(id(node))
        self._check_repeats(node, path)
        merged: _Entries = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for source in reversed(sources):  # the first is the strongest
                    if not isinstance(source, yaml.MappingNode):
                        raise self._refused(value, "<< of something else", "<< of mappings")
                    entries = self._flat(source, path)
                    self._count(value, 1 + len(entries))
                    merged |= entries
        self._merging.pop()
        own = {self._name(key): (key, value) for key, value in node.value if key.tag != _MERGE}
        self._merged[id(node)] = merged | own
        return self._merged[id(node)]

    def _check_repeats(self, node: yaml.MappingNode, path: str) -> None:
        first_lines: dict[str, int] = {}
        for key, _ in node.value:
            name, line = self._name(key), key.start_mark.line + 1
            if key.tag != _MERGE and name in first_lines:
                where = place(self.document.file, line, key_path(path, name))
                found = f"the key {name} a second time"
                expected = f"it once (the first is on line {first_lines[name]})"
                self.problems.append(Problem(where, found, expected, "remove one of the two"))
            first_lines.setdefault(name, line)

    def _name(self, key: yaml.Node) -> str:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(None, None, "a key that is not text", key.start_mark)
        name = joined(key.value)
        if len(name) > MAX_KEY:
            raise self._refused(key, f"a key of {len(name):,} characters", f"{MAX_KEY} at most")
        if code := no_text(name):
            raise self._refused(key, f"a key with the character {code}", "text")
        return name

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        if getattr(node, "style", None) is None and _at(node.end_mark, _REMARK):
            self.remarked.add(path)
        if self._as_text:
            if beginning := _at(node.start_mark, _RESERVED):
                where, found = self.document.where(path), f"a value that begins with {beginning}"
                expected = "a value that begins otherwise: this character is reserved in YAML"
                self.document.cut[path] = Problem(where, found, expected, "put it in quotes")
            return self._text(node.value, path)
        try:
            value = self._loader.construct_object(node)
            return self._text(value, path) if isinstance(value, str) else value
        except ValueError:  # such as a number of 5,000 digits
            where, found = self.document.where(path), self.document.texts[path]
            remedy = f'write text in quotes: "{node.value}"'
            self.problems.append(Problem(where, found, "a number that YAML can read", remedy))
            return None

    def _text(self, text: str, path: str) -> str:
        """A text, if a file can hold it as it is: what has no UTF-8 can be written nowhere."""
        whole = joined(text)
        if code := no_text(whole):
            where = self.document.where(path)
            self.problems.append(Problem(where, f"the character {code}", "text without it"))
        return whole


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
