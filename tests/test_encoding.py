"""Every text file is UTF-8, whatever the user's locale: each call that opens one says so."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import testbed

ROOT = Path(testbed.__file__).parent.parent
FILES = [
    file
    for folder in ("testbed", "labs", "scenarios", "scripts", "examples", "tools")
    for file in sorted((ROOT / folder).rglob("*.py"))
]

TEXT = {"read_text", "write_text"}
OPENERS = {"open", "fdopen", "TextIOWrapper", "NamedTemporaryFile"}
NO_FILES = {
    "LinkModel",
    "_links",
    "_recorders",
    "cls",
    "control",
    "links",
    "os",
    "recorders",
    "self",
}
NO_TEXTS = {"Image", "content"}
"""What else has a method `open`: here, and of libraries (a picture, a zip file)."""


def in_the_users_encoding(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that read or write text and leave its encoding to the locale."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        function = call.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if "encoding" in keywords:
            continue
        owner = getattr(function, "value", None)
        of = getattr(owner, "attr", getattr(owner, "id", ""))
        constants = [
            value.value
            for argument in (*call.args, *keywords.values())
            for value in ast.walk(argument)
            if isinstance(value, ast.Constant) and isinstance(value.value, str)
        ]
        is_binary = any("b" in text and len(text) <= 3 for text in constants)
        opens_text = (
            name in OPENERS and not is_binary and not (name == "open" and of in NO_FILES | NO_TEXTS)
        )
        if name in TEXT or opens_text or {"text", "universal_newlines"} & keywords.keys():
            yield call


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_text_is_utf_8(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert not [f"{file}:{call.lineno}" for call in in_the_users_encoding(tree)]
