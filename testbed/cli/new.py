"""`testbed new`: a file of your own to begin with, which runs, with a test."""

import keyword
import re
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.screen import stdout
from testbed.model.errors import InputError
from testbed.results.whole_file import writing

_SKELETONS = Path(__file__).parent / "skeletons"


class Kind(StrEnum):
    """What can be begun."""

    SELECTOR = "selector"
    CONTROLLER = "controller"
    SCENARIO = "scenario"
    STUDY = "study"


_CLASSES = {Kind.SELECTOR: ("spray", "healthy"), Kind.CONTROLLER: ("congestion", "incast")}
"""The key of the transport that names such a class, and the scenario that its test runs."""

_NO_TEXT = {"true", "false", "null"}
"""What YAML reads as something else than a name."""


def new(
    kind: Annotated[Kind, typer.Argument(help="What to begin.", show_default=False)],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name: my_selector.")],
) -> None:
    """Begin a file of your own that runs, with a test.

    A class comes with a test for pytest; of a scenario and a study, `expect:` is the test.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        expected = "small letters, digits and _, 40 at most, beginning with a letter"
        raise InputError.of("NAME", name, expected)
    if name in _NO_TEXT or find_spec(name) is not None:  # which others would import by mistake
        expected = "a name that means nothing else to Python or YAML"
        raise InputError.of("NAME", name, expected, f"such as my_{name}")
    files = {Path(f"{name}.yaml"): f"{kind}.yaml"}
    if kind in _CLASSES:
        files = {Path(f"{name}.py"): f"{kind}.py", Path(f"test_{name}.py"): "test.py"}
    for file in files:
        if file.exists():
            raise InputError.of("NAME", f"{file}, which exists", "a name that is not taken")
    words = {"mine": name, "Mine": "".join(part.capitalize() for part in name.split("_"))}
    if kind in _CLASSES:
        words |= dict(zip(("KEY", "SCENARIO"), _CLASSES[kind], strict=True))
    for file, skeleton in files.items():
        text = (_SKELETONS / skeleton).read_text(encoding="utf-8")
        ours = rf"(?<![A-Za-z])({'|'.join(words)})(?![a-z])"
        text = re.sub(ours, lambda found: words[found[0]], text)
        with writing("NAME", file):
            file.write_text(text, encoding="utf-8")
        stdout().print(f"wrote {file}")
    stdout().print(f"next: the commands at the top of {next(iter(files))}")
