"""Pages that are generated from the code: commands, Python, schemas."""

import inspect
import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import testbed
from testbed.cli import command_line

PROJECT = Path(__file__).parents[2]
PAGES = ("commands", "python", "schemas")


def pages() -> dict[str, str]:
    """Each page by its name."""
    return {"commands": _commands(), "python": _python(), "schemas": _schemas()}


# --- commands ---------------------------------------------------------------------------------


def _commands() -> str:
    text = [
        "# Commands",
        "",
        "Every command and option, from the command line itself. `--help` shows the same.",
        "",
    ]
    for name, command in _each_command("testbed", typer.main.get_command(command_line())):
        text += _command(name, command)
    return "\n".join(text)


def _each_command(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, below in sorted(command.commands.items()):
        if not below.hidden:
            yield from _each_command(f"{name} {word}", below)


def _command(name: str, command: Any) -> list[str]:
    text = [f"## {name}", "", _escaped(inspect.cleandoc(command.help or "")), ""]
    words = []
    rows = []
    for parameter in command.params:
        shown = getattr(parameter, "help", "") or ""
        if parameter.param_type_name == "argument":
            metavar = (parameter.metavar or parameter.name or "").upper()
            optional = not parameter.required and not metavar.startswith("[")
            words.append(f"[{metavar}]" if optional else metavar)
            rows.append(f"| `{metavar}` | {_escaped(shown)} |")
        elif not parameter.hidden:
            options = ", ".join((*parameter.opts, *parameter.secondary_opts))
            metavar = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
            rows.append(f"| `{options}{metavar}` | {_escaped(shown)} |")
    listing = " ".join((name, *words, *(("[OPTIONS]",) if rows else ())))
    text += ["```", listing, "```", ""]
    if rows:
        text += ["| | |", "| --- | --- |", *rows, ""]
    return text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


# --- Python -----------------------------------------------------------------------------------


def _python() -> str:
    text = [
        "# Python reference",
        "",
        f"The names of `testbed.__all__`, version {testbed.__version__}, from their docstrings.",
        "An introduction: [Python and notebooks](../docs/python.md).",
        "",
    ]
    for name in sorted(testbed.__all__, key=lambda one: (not one[0].islower(), one)):
        if name.startswith("_"):
            continue
        thing = getattr(testbed, name)
        text += _class(name, thing) if inspect.isclass(thing) else _function(name, thing)
    return "\n".join(text)


def _function(name: str, function: Any) -> list[str]:
    return [f"## {name}", "", *_signature(f"testbed.{name}", function), *_docstring(function)]


def _signature(name: str, function: Any) -> list[str]:
    hints = typing.get_type_hints(function)
    signature = inspect.signature(function)
    parameters = [
        f"    {'*, ' if i == _first_keyword(signature) else ''}"
        f"{parameter.name}: {_type(hints.get(parameter.name, Any))}"
        + ("" if parameter.default is parameter.empty else f" = {_default(parameter.default)}")
        for i, parameter in enumerate(signature.parameters.values())
    ]
    returned = _type(hints.get("return", Any))
    return ["```python", f"{name}(", ",\n".join(parameters), f") -> {returned}", "```", ""]


def _first_keyword(signature: inspect.Signature) -> int:
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    return kinds.index(keyword_only) if keyword_only in kinds else -1


def _default(value: object) -> str:
    return (
        repr(str(value))
        if isinstance(value, Path)
        else repr(value).replace("mappingproxy({})", "{}")
    )


def _type(hint: Any) -> str:
    text = inspect.formatannotation(hint)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def _class(name: str, kind: type) -> list[str]:
    text = [f"## {name}", "", *_docstring(kind)]
    if hasattr(kind, "model_fields"):
        text += ["Its keys: [schemas](schemas.md).", ""]
        return text
    for member, value in vars(kind).items():
        function = getattr(value, "func", None) or getattr(value, "fget", None) or value
        if member.startswith("_") or not inspect.isfunction(function):
            continue
        call = "()" if function is value else ""
        text += [f"### {name}.{member}{call}", "", *_docstring(function)]
    return text


def _docstring(thing: Any) -> list[str]:
    """A docstring in Google's form as Markdown: its sections as lists."""
    lines = inspect.cleandoc(thing.__doc__ or "").splitlines()
    text: list[str] = []
    for line in lines:
        if re.fullmatch(r"(Args|Attributes|Raises|Returns|Yields):", line):
            text += ["", f"**{line.removesuffix(':')}**", ""]
        elif match := re.fullmatch(r" {4}(\w+): (.*)", line):
            text.append(f"- `{match[1]}`: {match[2]}")
        else:
            text.append(line)
    return [*text, ""]


# --- schemas ----------------------------------------------------------------------------------


def _schemas() -> str:
    text = [
        "# Schemas",
        "",
        "What stands in files, from the JSON Schemas that `testbed schema` writes.",
        "",
    ]
    for file in sorted((PROJECT / "docs/schema").glob("*.json")):
        schema = json.loads(file.read_text(encoding="utf-8"))
        text += [f"## {file.stem}", "", f"[{file.name}](../docs/schema/{file.name})", ""]
        text += _keys(schema)
        for name, part in schema.get("$defs", {}).items():
            if "properties" in part:
                text += [f"### {file.stem}: {name}", "", part.get("description", ""), ""]
                text += _keys(part)
    return "\n".join(text)


def _keys(part: dict[str, Any]) -> list[str]:
    """The keys of a mapping as a table."""
    rows = [
        f"| `{key}` | {_kind(value)} | {_escaped(value.get('description', ''))} |"
        for key, value in part.get("properties", {}).items()
    ]
    return ["| key | type | |", "| --- | --- | --- |", *rows, ""] if rows else []


def _kind(value: dict[str, Any]) -> str:
    """The type of a value in few words."""
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in value:
            kinds = dict.fromkeys(_kind(one) for one in value[several])
            return " or ".join(kinds)
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    kind = value.get("type", "")
    if kind == "array" and "items" in value:
        return f"list of {_kind(value['items'])}"
    return ", ".join(kind) if isinstance(kind, list) else str(kind)
