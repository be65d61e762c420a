"""Code of the user's own: a class in the place of an algorithm of the transport, or a metric.

Its parameters are read from its source: nothing of a file is executed before a run begins.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.model.errors import InputError, RefusedValueError
from testbed.model.part import Part
from testbed.model.units import BaseRtt, parse_real_time

_PATTERN: Final = r"(.+\.py):([A-Za-z_]\w*)"

REFERENCE: Final = re.compile(_PATTERN)
"""How a scenario names such a class, or a study a function: `./mine.py:Selector`."""


CLASS: Final = "class"
"""The key of the class where it has parameters beside it: `{class: ./mine.py:Selector, evs: 8}`."""

GIVEN: Final = {"spray": ("evs", "seed"), "congestion": ("path",)}
"""What the testbed gives to `__init__` of a class, in this order, by the key of the transport."""

ALSO_GIVEN: Final = frozenset({"record"})
"""What it gives by name to a class that has a parameter of that name."""


class OwnCode(Part):
    """A class or function in a Python file, with the whole file, from which it is made again.

    A model takes it only as an object: a file that a person names can name code, never hold it.

    Attributes:
        file: the file's path, as messages and tracebacks name it.
        name: the name of the class or function.
        source: the content of the file.
        modules: the content of the files in its folder that it imports, by the module's name.
        parameters: what the scenario gives to `__init__` by name, as it is written there.
    """

    file: str
    name: str
    source: str
    modules: dict[Annotated[str, Field(pattern=r"^\w+$")], str] = Field(default={})
    parameters: dict[str, Any] = Field(default={})

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"

    @property
    def files(self) -> dict[str, str]:
        """The files in its folder that it imports, by their paths."""
        folder = Path(self.file).parent
        return {str(folder / f"{name}.py"): text for name, text in self.modules.items()}

    def arguments(self, key: str, rtt: BaseRtt, dilation: float) -> dict[str, Any]:
        """What is given to `__init__` by name; times in ns of the clock of the run.

        Args:
            key: the key of the transport that it stands at.
            rtt: the base RTT, in which times may be written.
            dilation: that of the run.
        """
        values = dict(self.parameters)
        for name, parameter in self.declared(key).items():
            value = values.get(name, parameter.default)
            if parameter.is_written_time(value):
                values[name] = round(parse_real_time(value, rtt) * dilation)
        return values

    def declared(self, key: str) -> dict[str, "Parameter"]:
        """The parameters of the class that a scenario may set, by name.

        Args:
            key: the key of the transport that it stands at.
        """
        return parameters_of(self.source, self.name, len(GIVEN[key]), tuple(self.modules.items()))

    def error(
        self, what: str, found: str, expected: str, line: int | None = None, remedy: str = ""
    ) -> InputError:
        """The error of the class or function, or of `what` in it.

        Args:
            what: the class, its method, or the function.
            found: what was found.
            expected: what would have been right.
            line: the line of the file, if it is known; else that where the code begins.
            remedy: what to do about it.
        """
        head = re.search(rf"^(?:class|def) {self.name}\b", self.source, re.MULTILINE)
        if line is None and head is not None:
            line = self.source.count("\n", 0, head.start()) + 1
        place = self.file if line is None else f"{self.file}:{line}"
        name = what if what == self.name else f"{self.name}.{what}"
        return InputError.of(f"{place}: {name}", found, expected, remedy)


def recorded_code(transport: Any) -> Any:
    """A transport as a run's record has it, in which each class with its source is an object."""
    if not isinstance(transport, Mapping):
        return transport
    fields = OwnCode.model_fields
    needed = {name for name, field in fields.items() if field.is_required()}
    return {
        key: OwnCode.model_validate(value)
        if isinstance(value, Mapping) and needed <= value.keys() <= fields.keys()
        else value
        for key, value in transport.items()
    }


# --------------------------------------------------------------------------------------------------
# The parameters of a class, by its source.


_TIME: Final = "Duration"
"""The type of a parameter that is a time: `testbed.algorithms.Duration`."""

_ANY_RTT: Final = BaseRtt(1, 1)
"""To check how a time is written, before the fabric is known."""

_EXPECTED: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "None": "null",
}


_TYPES: Final = {"int": int, "float": int | float, "str": str, "None": type(None)}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a class.

    Attributes:
        text: how its source declares it, such as `cache: int = 8`.
        module: the module beside the class's file that does; empty: that file itself.
        line: the line where it does.
        types: the names of the types that it may have, of those that are checked, and the values of
            a `Literal`; empty: any.
        required: whether it has no default.
        default: its default; if that is no literal, what stands there.
    """

    text: str
    module: str
    line: int
    types: tuple[str, ...]
    required: bool
    default: Any

    @property
    def is_time(self) -> bool:
        """Whether it is written as a time with its unit, and given in ns."""
        return _TIME in self.types

    def is_written_time(self, value: object) -> bool:
        """Whether a value is the text of a time, which the class gets in ns."""
        known = any(_is_of(value, name) for name in self.types)
        return self.is_time and isinstance(value, str) and not known

    def check(self, value: object) -> None:
        """Check a value that a scenario gives.

        Raises:
            RefusedValueError: it has another type.
        """
        if not self.types or any(_is_of(value, name) for name in self.types):
            return
        if self.is_time:
            parse_real_time(value, _ANY_RTT)
            return
        raise RefusedValueError(" or ".join(_EXPECTED.get(name, name) for name in self.types))

    def check_default(self) -> None:
        """Check that the default of a time can be read without executing the file.

        Raises:
            RefusedValueError: it is no literal, or no time.
        """
        if self.is_time and isinstance(self.default, ast.expr):
            raise RefusedValueError("the time itself as its default, such as '2 RTT'")
        if self.is_written_time(self.default):
            self.check(self.default)


def _is_of(value: object, name: str) -> bool:
    """Whether a value has a type, or is the value of a `Literal`."""
    if name == repr(value):
        return True
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return name == "bool" and isinstance(value, bool)
    return isinstance(value, _TYPES.get(name, ()))


@cache
def parameters_of(
    source: str, name: str, given: int, modules: tuple[tuple[str, str], ...] = ()
) -> dict[str, Parameter]:
    """The parameters of a class that a scenario may set, by name.

    They are those of `__init__`, or the fields of a dataclass, behind what the testbed gives. A
    class without either has those of its first base in these files.

    Args:
        source: the content of its file.
        name: its name.
        given: how many parameters the testbed gives by position.
        modules: the names and contents of the modules beside it that it imports.
    """
    files = {"": ast.parse(source).body} | {m: ast.parse(text).body for m, text in modules}
    found, seen = _class_called(files, "", name), set[ast.ClassDef]()
    while found is not None and found[1] not in seen:
        module, node = found
        if (declared := _declared(node, given)) is not None:
            return {
                called: _parameter(module, part, default)
                for part, default in declared
                if (called := _name_of(part)) not in ALSO_GIVEN
            }
        seen.add(node)
        found = _class_called(files, module, ast.unparse(node.bases[0])) if node.bases else None
    return {}


def _class_called(
    files: Mapping[str, list[ast.stmt]], module: str, name: str
) -> tuple[str, ast.ClassDef] | None:
    """The class that `Base` or `near.Base` means in a file, with the module that has it, if any."""
    first, _, last = name.partition(".")
    for node in files[module]:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            beside, called = alias.name, last
            if isinstance(node, ast.ImportFrom):
                beside, called = node.module or "", alias.name
            if (alias.asname or alias.name) == first and beside in files.keys() - {"", module}:
                return _class_called(files, beside, called)
    return None


_Declared: TypeAlias = tuple[ast.arg | ast.AnnAssign, ast.expr | None]
"""A parameter, with its default."""


def _declared(node: ast.ClassDef, given: int) -> Sequence[_Declared] | None:
    """The parameters of the constructor of a class; None if it is that of another class."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            usual, keywords = part.args.posonlyargs + part.args.args, part.args.kwonlyargs
            without = [None] * (len(usual) - len(part.args.defaults))
            defaults = [*without, *part.args.defaults]
            named = zip(keywords, part.args.kw_defaults, strict=True)
            return [*[*zip(usual, defaults, strict=True)][1 + given :], *named]
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        ours = [field for field in fields if not _NO_PARAMETER.search(ast.unparse(field))]
        return [(field, field.value) for field in ours][given:]
    return None


_NO_PARAMETER: Final = re.compile(r": (?:\w+\.)?(?:ClassVar|KW_ONLY)\b|= .*\binit=False\b")
"""What a dataclass declares like a field, though `__init__` does not take it."""


def _name_of(node: ast.arg | ast.AnnAssign) -> str:
    return node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)


def _parameter(module: str, node: ast.arg | ast.AnnAssign, default: ast.expr | None) -> Parameter:
    try:
        value = None if default is None else ast.literal_eval(default)
        is_literal = default is not None
    except (ValueError, TypeError):  # none, or one such as {[]: 1}, which cannot be
        value, is_literal = default, False
    text = ast.unparse(node)
    if isinstance(node, ast.arg) and default is not None:
        text += f" = {ast.unparse(default)}" if node.annotation else f"={ast.unparse(default)}"
    types = () if node.annotation is None else tuple(_types(node.annotation))
    if node.annotation is None and is_literal and type(value).__name__ in _EXPECTED:
        types = (type(value).__name__,)
    types = () if "" in types else types
    return Parameter(text, module, node.lineno, types, default is None, value)


def _types(annotation: ast.expr) -> Iterator[str]:
    """The names of the types of an annotation; empty for each that is not checked."""
    match annotation:
        case ast.BinOp(op=ast.BitOr()):
            yield from _types(annotation.left)
            yield from _types(annotation.right)
        case ast.Subscript(value=ast.Name(id="Literal") | ast.Attribute(attr="Literal")):
            inner = annotation.slice
            yield from map(ast.unparse, inner.elts if isinstance(inner, ast.Tuple) else [inner])
        case ast.Constant(value=str() as text):
            try:
                yield from _types(ast.parse(text, mode="eval").body)
            except (SyntaxError, ValueError):
                yield ""
        case ast.Constant(value=None):
            yield "None"
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name if name in {*_EXPECTED, _TIME} else ""
        case _:
            yield ""


# --------------------------------------------------------------------------------------------------
# A field of the transport that may hold one.


_WITH_PARAMETERS: Final = "name its file beside its parameters: {class: ./mine.py:MyClass, ...}"


@dataclass(frozen=True, slots=True)
class OrOwnCode:
    """Marks a field that holds one of several names, or code of the user's own."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Take a name or an object; refuse all else, also the keys of `OwnCode`."""
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def _check(self, value: object) -> object:
        if not isinstance(value, OwnCode) and value not in self.names:
            raise RefusedValueError(
                f"{', '.join(self.names)}, or a class of your own such as ./mine.py:MyClass",
                remedy=_WITH_PARAMETERS if isinstance(value, dict) else "",
            )
        return value

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Write what stands in a file: a name, or a reference."""
        handler(schema)
        own = {"type": "string", "pattern": f"^{_PATTERN}$"}
        with_parameters = {"type": "object", "properties": {CLASS: own}, "required": [CLASS]}
        return {"anyOf": [{"enum": list(self.names)}, own, with_parameters]}
