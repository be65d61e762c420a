"""Classes of the user's own that a scenario names, with or without parameters; a study's functions.

    spray: ./mine.py:Selector
    spray: {class: ./mine.py:Selector, cache: 8}
    metric: ./mine.py:gap_rtt

Nothing of their files is executed here: what they import and which parameters they have is read
from their source.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from testbed.model.errors import (
    InputError,
    Problem,
    RefusedValueError,
    did_you_mean,
    few,
    raise_any,
    similar_word,
)
from testbed.model.file_names import is_there
from testbed.model.files.catalog import relative_to_here
from testbed.model.files.reading import Document
from testbed.model.own_code import CLASS, GIVEN, REFERENCE, OwnCode, Parameter
from testbed.model.transport import Mrc


def with_own_code(document: Document) -> Document:
    """A document with an object, which has the source, for each class of the user's own.

    A path is relative to the scenario's file, or, in an option, to the current directory.

    Raises:
        InputError: there is no such file or class, it is not Python, or has other parameters.
    """
    transport = document.data.get("transport")
    if not isinstance(transport, dict) or transport.get("kind", Mrc().kind) != Mrc().kind:
        return document
    changed = {}
    for key in GIVEN:
        named = transport.get(key)
        path = f"transport.{key}"
        if isinstance(named, str) and REFERENCE.fullmatch(named):
            changed[key] = _own_code(document, path, named, key, {})
        elif isinstance(named, dict) and CLASS in named:
            given = {name: value for name, value in named.items() if name != CLASS}
            changed[key] = _own_code(document, f"{path}.{CLASS}", named[CLASS], key, given)
    return replace(document, data={**document.data, "transport": transport | changed})


def own_function(document: Document, path: str, named: str) -> OwnCode:
    """A function of the user's own, `FILE.py:FUNCTION`, that a document names at a key path.

    Raises:
        InputError: there is no such file or function, or it is not Python.
    """
    file, name = named.rsplit(":", 1)
    return _read(document, path, file, name, ast.FunctionDef)


def opened(document: Document, path: str) -> Document:
    """A document in which a parameter can be set: a class that is only named becomes a mapping."""
    transport = document.data.get("transport")
    if not isinstance(transport, dict):
        return document
    changed: dict[str, Any] = {}
    for key in GIVEN:
        named = transport.get(key)
        if not path.startswith(f"transport.{key}."):
            continue
        if isinstance(named, OwnCode):
            changed[key] = {CLASS: named, **named.parameters}
        elif isinstance(named, str) and REFERENCE.fullmatch(named):
            changed[key] = {CLASS: named}
    return replace(document, data={**document.data, "transport": transport | changed})


def _own_code(
    document: Document, path: str, named: object, key: str, given: Mapping[str, Any]
) -> OwnCode:
    """A class with its files and parameters.

    Args:
        document: for messages.
        path: the key path that names the class.
        named: what stands there: `FILE.py:CLASS`, or the class of a scenario that is changed.
        key: the key of the transport.
        given: the values of its parameters.
    """
    if not isinstance(named, OwnCode):
        reference = REFERENCE.fullmatch(named) if isinstance(named, str) else None
        if reference is None:
            expected = "a class of your own such as ./mine.py:MyClass"
            raise InputError.of(document.where(path), str(named), expected)
        named = _read(document, path, reference[1], reference[2])
    raise_any(_parameter_problems(document, f"transport.{key}", named, key, given))
    return named.model_copy(update={"parameters": dict(given)})


def _parameter_problems(
    document: Document, path: str, code: OwnCode, key: str, given: Mapping[str, Any]
) -> Iterator[Problem]:
    """What is wrong with the values of a class's parameters."""
    try:
        known = code.declared(key)
    except RecursionError:
        found = f"parameters of {code.name} nested too deeply"
        raise InputError.of(
            code.file, found, _PYTHON, "name what they have in a constant"
        ) from None
    for name, value in given.items():
        where, parameter = f"{path}.{name}", known.get(name)
        if parameter is None:
            others = f"one of {', '.join(known)}" if known else "none: it has no parameters"
            expected = f"a parameter of {code.name} in {code.file}, {others}"
            remedy = did_you_mean(name, tuple(known)) or f"add it to {code.name}.__init__"
            yield Problem(document.where(where), f"the parameter {name}", expected, remedy)
            continue
        try:
            parameter.check(value)
        except RefusedValueError as refused:
            found = document.texts.get(where, str(value))
            expected = f"{refused.expected}, as {_place(code, parameter)} has {parameter.text}"
            yield Problem(document.where(where), found, expected, refused.remedy)
    for name, parameter in known.items():
        if name in given:
            continue
        if parameter.required:
            expected = f"a value for {parameter.text}, which {_place(code, parameter)} requires"
            remedy = f"add {name} beside {CLASS}, or a default to {code.name}.__init__"
            yield Problem(document.where(f"{path}.{name}"), "", expected, remedy)
        try:
            parameter.check_default()
        except RefusedValueError as refused:
            place = f"{_place(code, parameter)}: {code.name}"
            yield Problem(place, parameter.text, refused.expected, refused.remedy)


def _place(code: OwnCode, parameter: Parameter) -> str:
    """File and line that declare a parameter."""
    file = Path(code.file)
    return (
        f"{file.with_name(f'{parameter.module}.py') if parameter.module else file}:{parameter.line}"
    )


_PYTHON = "a file that is valid Python"

_MOST: Final = 1 << 20
"""Most characters of a file, which is kept in the record of each run. Ours."""


def _read(
    document: Document,
    path: str,
    name: str,
    wanted: str,
    kind: type[ast.ClassDef | ast.FunctionDef] = ast.ClassDef,
) -> OwnCode:
    """The class or function with its file and those that this imports, if the file has it."""
    is_class = kind is ast.ClassDef
    what, begins = ("class", "class") if is_class else ("function", "def")
    parts = ("transport", path.removesuffix(f".{CLASS}"), path)
    is_on_command_line = any(part in document.origins for part in parts)
    file = Path(name) if is_on_command_line else document.directory / name
    where = document.where(path)
    if not is_there(file):
        place = "the scenario" if is_class else "the study"
        expected = f"a Python file, relative to {'here' if is_on_command_line else place}"
        raise InputError.of(where, f"{file}, which does not exist", expected)
    file = relative_to_here(file)
    source, tree = _parsed(file)
    known = [node.name for node in tree.body if isinstance(node, kind)]
    if wanted not in known:
        similar = similar_word(wanted, known) or (known[0] if len(known) == 1 else None)
        remedy = f"add {begins} {wanted}: to {file}"
        if similar is not None:
            remedy = f"did you mean {similar}? Or rename that {what} to {wanted}"
        expected = f"a {what} of {file}" + (f": {few(known)}" if known else ", which has none")
        raise InputError.of(where, wanted, expected, remedy)
    return OwnCode(file=str(file), name=wanted, source=source, modules=_modules(file, tree))


def _parsed(file: Path) -> tuple[str, ast.Module]:
    """The content of a Python file.

    Raises:
        InputError: it cannot be read, or is not Python.
    """
    shown = str(file)
    try:
        if not file.is_file() and not file.is_dir():
            raise InputError.of(shown, "a pipe or a device", "a file of its own")
        with file.open(encoding="utf-8") as stream:
            source = stream.read(_MOST + 1)
        if len(source) > _MOST:
            raise InputError.of(shown, "a larger file", f"a file of {_MOST >> 20} MiB at most")
        return source, ast.parse(source, shown)
    except SyntaxError as error:
        place = f"{shown}:{error.lineno}"
        raise InputError.of(place, f"no Python: {error.msg}", _PYTHON) from None
    except UnicodeDecodeError as error:
        found = f"a byte that is not UTF-8 at offset {error.start}"
        raise InputError.of(shown, found, _PYTHON, "save it as UTF-8") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError.of(shown, f"no Python: {error or 'nested too deeply'}", _PYTHON) from None
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        raise InputError.of(shown, found, "a file that you may read") from None


def files_of(file: Path) -> list[Path]:
    """A file, and those in its folder that it imports, as far as they can be read."""
    try:
        _, tree = _parsed(file)
        return [file, *(file.with_name(f"{name}.py") for name in _modules(file, tree))]
    except InputError:  # whoever uses the code is told
        return [file]


def _modules(file: Path, tree: ast.Module) -> dict[str, str]:
    """The content of the modules in a file's folder that it imports, also by way of others.

    A module of Python's own library, or of the testbed, is never one in the folder.

    Raises:
        InputError: one cannot be read, or is not Python.
    """
    modules: dict[str, str] = {}
    trees = [tree]
    while trees:
        for name in sorted(_imported(trees.pop()) - modules.keys()):
            neighbour = file.with_name(f"{name}.py")
            if is_there(neighbour, Path.is_file):
                modules[name], tree = _parsed(neighbour)
                trees.append(tree)
    return dict(sorted(modules.items()))


def _imported(tree: ast.Module) -> set[str]:
    """The first names of the modules that a file imports, but Python's own and the testbed."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - {"testbed", *sys.stdlib_module_names}
