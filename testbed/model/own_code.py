"""A class of the user's own that takes the place of an algorithm of the transport."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.model.errors import InputError, RefusedValueError
from testbed.model.part import Part

_PATTERN: Final = r"(.+\.py):([A-Za-z_]\w*)"

REFERENCE: Final = re.compile(_PATTERN)
"""How a scenario names such a class: `./mine.py:Selector`."""


class OwnCode(Part):
    """A class in a Python file, with the whole file, so that the run can be made again from it.

    A model takes it only as an object: a file that a person names can name code, never hold it.

    Attributes:
        file: the file's path, as messages and tracebacks name it.
        name: the name of the class.
        source: the content of the file.
    """

    file: str
    name: str
    source: str

    def __str__(self) -> str:
        """As a scenario names it."""
        return f"{self.file}:{self.name}"

    def error(
        self, what: str, found: str, expected: str, line: int | None = None, remedy: str = ""
    ) -> InputError:
        """The error of the class or of `what` in it.

        Args:
            what: the class or its method.
            found: what was found.
            expected: what would have been right.
            line: the line of the file, if it is known; else that of the class.
            remedy: what to do about it.
        """
        head = re.search(rf"^class {self.name}\b", self.source, re.MULTILINE)
        if line is None and head is not None:
            line = self.source.count("\n", 0, head.start()) + 1
        place = self.file if line is None else f"{self.file}:{line}"
        name = what if what == self.name else f"{self.name}.{what}"
        return InputError.of(f"{place}: {name}", found, expected, remedy)


def recorded_code(transport: Any) -> Any:
    """A transport as a run's record has it, in which each class with its source is an object."""
    if not isinstance(transport, Mapping):
        return transport
    keys = OwnCode.model_fields.keys()
    return {
        key: OwnCode.model_validate(value)
        if isinstance(value, Mapping) and value.keys() == keys
        else value
        for key, value in transport.items()
    }


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
                remedy="put the code into a file, and name it" if isinstance(value, dict) else "",
            )
        return value

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Write what stands in a file: a name, or a reference."""
        handler(schema)
        own = {"type": "string", "pattern": f"^{_PATTERN}$"}
        return {"anyOf": [{"enum": list(self.names)}, own]}
