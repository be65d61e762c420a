"""Classes of the user's own that a scenario names: `spray: ./mine.py:Selector`."""

import ast
from dataclasses import replace
from pathlib import Path

from testbed.model.errors import InputError, few, similar_word
from testbed.model.file_names import is_there
from testbed.model.files.catalog import relative_to_here
from testbed.model.files.reading import Document
from testbed.model.own_code import REFERENCE, OwnCode
from testbed.model.transport import Mrc

_KEYS = ("spray", "congestion")


def with_own_code(document: Document) -> Document:
    """A document with an object, which has the source, for each class of the user's own.

    A path is relative to the scenario's file, or, in an option, to the current directory.

    Raises:
        InputError: there is no such file or class, or it is not Python.
    """
    transport = document.data.get("transport")
    if not isinstance(transport, dict) or transport.get("kind", Mrc().kind) != Mrc().kind:
        return document
    changed = {
        key: _own_code(document, f"transport.{key}", reference.group(1), reference.group(2))
        for key in _KEYS
        if isinstance(named := transport.get(key), str)
        and (reference := REFERENCE.fullmatch(named)) is not None
    }
    return replace(document, data={**document.data, "transport": transport | changed})


_PYTHON = "a file that is valid Python"


def _own_code(document: Document, path: str, name: str, wanted: str) -> OwnCode:
    """The class with its file, after a check that it has the class."""
    is_on_command_line = path in document.origins or "transport" in document.origins
    file = Path(name) if is_on_command_line else document.directory / name
    where = document.where(path)
    if not is_there(file):
        expected = f"a Python file, relative to {'here' if is_on_command_line else 'the scenario'}"
        raise InputError.of(where, f"{file}, which does not exist", expected)
    shown = str(relative_to_here(file))
    try:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source, shown)
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
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if wanted not in classes:
        similar = similar_word(wanted, classes) or (classes[0] if len(classes) == 1 else None)
        remedy = f"add class {wanted}: to {shown}"
        if similar is not None:
            remedy = f"did you mean {similar}? Or rename that class to {wanted}"
        expected = f"a class of {shown}" + (f": {few(classes)}" if classes else ", which has none")
        raise InputError.of(where, wanted, expected, remedy)
    return OwnCode(file=shown, name=wanted, source=source)
