"""Reads YAML files and requests.

Stricter than YAML: a key given twice is an error, and keys are always text. `scalars` says what is
a number.

What is wrong with a file that is not YAML is said in plain words, by the line that has to change.
PyYAML says where it gave up, which is often a line below the one that is wrong. The slips that
people make most are named by the line and by what to write; for others its own words do.
"""

import codecs
import errno
import json
import math
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import yaml

from testbed.model.errors import InputError, Problem, raise_any, similar_word
from testbed.model.units import is_in_rtts

_NO_BLANK = re.compile(r"\s*(?:- )?([\w.-]+):([^\s:/].*)")
_KEY_AND_VALUE = re.compile(r"([A-Za-z][\w.-]*)\s*[= ]\s*([\w.%/-]+(?: \w+)?)")

_GENERAL = "check indentation, colons and brackets there and on the line before"
_LONG_TEXT = "write the key, a colon and >, and its whole text below, with blanks before each line"
_OPENING = {"}": "{", "]": "["}
_CANNOT_BEGIN = (
    "cannot start any token|undefined alias|alphabetic or numeric|comment or a line break"
    "|expected chomping|(sequence entries|mapping keys) are"
)
"""What PyYAML says of a value that begins with a character that means something to it."""


def blank_remedy(text: str) -> str:
    """What to write in place of `key:value`; empty if a text is not of this form."""
    match = _NO_BLANK.fullmatch(text)
    return f"put a blank after the colon: {match[1]}: {match[2].strip()}" if match else ""


def entry_remedy(text: str) -> str:
    """What to write in place of a text that may be meant as an entry, such as `key=value`."""
    entry = _KEY_AND_VALUE.fullmatch(text)
    return blank_remedy(text) or (f"write {entry[1]}: {entry[2]}" if entry else "")


def syntax_problem(name: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    found = f"invalid YAML ({' '.join(filter(None, (error.context, error.problem)))})"
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem(name, found, "YAML", _GENERAL)
    lines, why, begun = text.splitlines(), str(error.problem), (error.context_mark or mark).line
    if "could not find expected ':'" in why:
        return _no_entry(name, lines, begun)
    if re.search("mapping values are not allowed|<block end>|<document start>', but found '<", why):
        return _misplaced(name, lines, mark)
    place, expected, remedy = f"{name}:{mark.line + 1}:{mark.column + 1}", "YAML", _GENERAL
    if "unexpected end of stream" in why:
        place, found = f"{name}:{begun + 1}", "a quote that is not closed"
        expected, remedy = "a quote at both ends", "close it, or one on a line above"
    elif bracket := re.search(r"expected ',' or '(.)'", why):
        closing = bracket[1]
        found = f"no {closing} for the {_OPENING.get(closing, '')} of line {begun + 1}"
        expected, remedy = f"{closing} or a comma", f"add the {closing}, or the comma"
    elif r"'\t'" in why:
        found, expected = "a tab", "spaces"
        remedy = "YAML indents with spaces: replace the tab by spaces"
    elif re.search(_CANNOT_BEGIN, why):
        found = f"{lines[mark.line].strip()}, with a character that YAML reserves"
        expected = "a value that does not begin with one of * & ? - > | @ % `"
        remedy = f"put it in quotes; if it is a longer text, {_LONG_TEXT}"
    return Problem(place, found, expected, remedy)


def _no_entry(name: str, lines: list[str], line: int) -> Problem:
    """The problem of a line without a colon and a blank, which YAML takes for a text."""
    text, expected = (
        lines[line].strip(),
        "a key, a colon and a value, or - before an entry of a list",
    )
    if remedy := blank_remedy(text):
        return Problem(f"{name}:{line + 1}", text, "a blank after the colon", remedy)
    is_remark = (
        "put # before it if it is a remark" if " " in text else f"write {text}: and its value"
    )
    remedy = f"{entry_remedy(text) or is_remark}; if it is text, {_LONG_TEXT}"
    return Problem(f"{name}:{line + 1}", text, expected, remedy)


def _misplaced(name: str, lines: list[str], mark: yaml.Mark) -> Problem:
    """The problem of an entry where YAML expects none: of its column, or of the line above it."""
    line, text = mark.line, lines[mark.line].strip()
    numbers = [i for i in range(line) if lines[i].strip() and lines[i].strip()[0] != "#"]
    above = numbers[-1] if numbers else line
    if blank_remedy(lines[above].strip()) or (above < line and ":" not in lines[above]):
        return _no_entry(name, lines, above)
    where = f"{name}:{line + 1}"
    before = lines[line][: mark.column].rstrip()
    if before[-1:] in {"'", '"', "]", "}"}:
        found = f"{text}, which goes on behind {before[-1]}"
        expected = "nothing behind the end of a value in quotes or brackets"
        return Problem(where, found, expected, f"if it is text, {_LONG_TEXT}, without these quotes")
    if ": " in before.strip():
        expected = "one key and one value on a line"
        remedy = "put what follows the first colon on the next line, indented, or in quotes if text"
        return Problem(where, text, expected, remedy)
    found, expected = (
        f"{text}, which is indented unlike the lines above it",
        "entries in one column",
    )
    remedy = f"indent it as the entries it belongs to; if it is text, {_LONG_TEXT}"
    return Problem(where, found, expected, remedy)


# --------------------------------------------------------------------------------------------------
# Files of lines, which are too long to be read at once.


MAX_TEXT = 100 << 20
"""Most characters of a file of lines. Ours."""

MAX_LINE = 10_000
"""Most characters of a line of it. Ours."""

MAX_LINES = 20_000_000
"""Most lines of it: twice those of the largest graph of operations. Ours."""

_AT_ONCE = 1 << 20
"""Characters that are read at once."""

_NO_UTF8 = {
    codecs.BOM_UTF16_LE: ("text in UTF-16", "save it as UTF-8"),
    codecs.BOM_UTF16_BE: ("text in UTF-16", "save it as UTF-8"),
    b"\x1f\x8b": ("compressed data", "unpack it with gunzip"),
    b"\x28\xb5\x2f\xfd": ("compressed data", "unpack it with zstd -d"),
    b"\xfd7zXZ": ("compressed data", "unpack it with unxz"),
    b"PK\3\4": ("compressed data", "unpack it with unzip"),
}
"""How files begin that are no text in UTF-8: what they are, and what to do about it."""


def text_lines(file: Path, what: str) -> Iterator[str]:
    """The lines of a file, one after another; bytes that are no UTF-8 may stand in comments.

    Raises:
        InputError: it cannot be read, or is too large.
    """
    left, number, left_over = MAX_TEXT, 0, ""
    try:
        if file.is_fifo():  # to open it would wait for whoever writes it
            raise InputError.of(str(file), "a pipe", what, "save it as a file")
        with file.open("rb") as data:
            head = data.peek(1)
            for beginning, (found, remedy) in _NO_UTF8.items():
                if head.startswith(beginning):
                    raise InputError.of(str(file), found, what, remedy)
            stream = TextIOWrapper(data, encoding="utf-8-sig", errors="replace")
            while block := stream.read(_AT_ONCE):
                left -= len(block)
                if left < 0:
                    expected = f"{what} of {MAX_TEXT >> 20} MiB at most"
                    raise InputError.of(str(file), "a larger file", expected)
                lines = (left_over + block).split("\n")
                left_over = lines.pop()
                if number + len(lines) > MAX_LINES:
                    expected = f"{what} of {MAX_LINES:,} lines at most"
                    raise InputError.of(str(file), "more lines", expected)
                for line in lines:
                    number += 1
                    yield _not_too_long(line, file, number)
                _not_too_long(left_over, file, number + 1)
            if left_over:
                yield left_over
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        raise InputError.of(str(file), found, what) from None


def _not_too_long(line: str, file: Path, number: int) -> str:
    """A line.

    Raises:
        InputError: it is too long.
    """
    if len(line) > MAX_LINE:
        found, expected = "a longer line", f"lines of {MAX_LINE:,} characters at most"
        raise InputError.of(f"{file}:{number}", found, expected)
    return line


# --------------------------------------------------------------------------------------------------
# Which words of a YAML file are numbers, truth values or text, as YAML 1.2 has it.
#
# PyYAML follows YAML 1.1, where `4:8` is 248 (base 60), `010` is 8 (base 8), `no` is false, and
# `1e-3` is text. Here `1e-3` is a number, and the others are text: where a number or a truth value
# belongs they are refused.


TEXT = "tag:yaml.org,2002:str"
_NO_TAGS = (None, "!", TEXT)
"""What may stand as the tag of a value: none, or that of text."""

_RULES = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+)", [*"-+0123456789"]),
    "float": (
        (
            r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
        [*"-+.0123456789"],
    ),
    "merge": (r"<<", ["<"]),
}
"""What each type looks like, and the characters that it begins with (YAML 1.2, section 10.3.2)."""

_LEADING_ZEROS = re.compile(r"([-+]?)0+([0-9]+)")


TAGGED = "tagged"
"""The tag of each node that has one in the file: it may not be what that says (`!!bool maybe`)."""


class Loader(yaml.SafeLoader):
    """The safe loader with the scalars of YAML 1.2; a node with a tag is `TAGGED`."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own attribute, as it declares it

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node, after a look at its tag."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        is_tagged = getattr(event, "tag", None) not in _NO_TAGS
        node: yaml.Node | None = super().compose_node(parent, index)
        if is_tagged and node is not None:
            node.tag = TAGGED
        return node


for _name, (_pattern, _first) in _RULES.items():
    Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), _first
    )


def joined(text: str) -> str:
    """A text in which two halves of a character, as JSON escapes them, are that character."""
    if text.isascii():
        return text
    halves = text.encode("utf-16-le", "surrogatepass")
    return halves.decode("utf-16-le", "surrogatepass")


def no_text(text: str) -> str:
    """The code of the first character of a text that no file can hold as it is; empty if all can.

    These are control characters and halves of characters, which only an escape can write.
    """
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    return "" if found is None else found[0].encode("unicode_escape").decode()


def number_remedy(text: str) -> str:
    """What to write in place of a word that is meant as a number; empty if that is not clear."""
    if zeros := _LEADING_ZEROS.fullmatch(text):
        return f"write it without the leading 0: {zeros[1]}{zeros[2]}"
    if text.endswith("%"):
        return _share_remedy(text)
    return ""


def _share_remedy(text: str) -> str:
    try:
        percentage = float(text.removesuffix("%"))
    except ValueError:
        return "write a percentage as a share, such as 0.2 for 20%"
    return f"write it as a share: {percentage / 100:.12g}"


# --------------------------------------------------------------------------------------------------
# The content of a YAML file or of a request: plain data, with the line and text of each part.


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
        is_of_shell = file.parts[1:2] in (("dev",), ("proc",))
        if file.is_fifo() and not is_of_shell:  # it would be waited for
            remedy = "save it as a file; a shell's <(...) can be read"
            raise InputError.of(str(file), "a named pipe", "a YAML file", remedy)
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
            expected = f"{MAX_VALUES:,} at most; what an alias or << repeats counts each time"
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
            remedy = "put text in quotes"
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
