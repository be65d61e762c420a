"""Checks a class of the user's own, and describes the errors that its code raises.

It uses the standard library alone: `own_worker.py`, which runs such a class in another process,
loads this file by its path.
"""

import inspect
import sys
import traceback
from dataclasses import dataclass
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Final, NamedTuple

NO_ERROR: Final = "code that raises no error"


@dataclass(frozen=True, slots=True)
class Interface:
    """The interface that a class of the user's own has to have.

    Attributes:
        required: the method or attribute that no class may lack.
        example: how a class defines it.
        methods: the parameters of each method, without `self`.
    """

    required: str
    example: str
    methods: dict[str, str]


SELECTOR: Final = Interface(
    "pick",
    "def pick(self, now_ns, flight, avoid), which returns an EV",
    {
        "__init__": "evs, seed",
        "pick": "now_ns, flight, avoid",
        "on_sack": "ev, acked, rtt_ns, *, ecn, now_ns",
        "on_nack": "ev, reason, now_ns",
        "on_loss": "ev, reason, now_ns",
        "on_state": "ev, state, *, active, now_ns",
    },
)
"""`mrc.PathSelector`."""

CONTROLLER: Final = Interface(
    "window",
    "self.window, a number of bytes that __init__ sets",
    {"__init__": "path", "on_sack": "sack", "on_nack": "nack", "on_loss": "loss"},
)
"""`mrc.CongestionController`."""


class InterfaceProblem(NamedTuple):
    """What is wrong with a class.

    Attributes:
        what: the name of the class or of its method.
        found: what was found there.
        expected: what would have been right.
        remedy: what to do about it; may be empty.
    """

    what: str
    found: str
    expected: str
    remedy: str


def load(name: str, file: str, source: str) -> Any:
    """Execute a file, and return a class of it.

    Its module stays in `sys.modules`, where `dataclasses` looks for what annotations name.

    Args:
        name: the name of the class.
        file: the file's path, as tracebacks name it.
        source: the content of the file.
    """
    module = ModuleType(f"{file}:{name}")  # no import can mean this name
    sys.modules[module.__name__] = module
    exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102 - it is the user's own
    return getattr(module, name)


def examine(own_class: Any, interface: Interface) -> tuple[dict[str, int], InterfaceProblem | None]:
    """Check that each method can be called as it will be.

    Args:
        own_class: the class.
        interface: the methods that are called, if they are there.

    Returns:
        The lines of the methods that it has, and the first mistake.
    """
    lines, mistakes, methods = dict[str, int](), list[InterfaceProblem](), interface.methods
    known = [name for name in methods if name != "__init__"]
    for name in dir(own_class):
        method = inspect.getattr_static(own_class, name)
        function = inspect.unwrap(getattr(method, "__func__", method))
        if (code := getattr(function, "__code__", None)) is not None:
            lines[name] = code.co_firstlineno
        if name in methods:
            mistakes += _wrong_parameters(own_class, name, methods[name])
        elif name.startswith("on_") and callable(getattr(own_class, name)):
            close = get_close_matches(name, known, n=1)
            remedy = f"did you mean {close[0]}?" if close else "rename it if it is one of your own"
            found = "a method that nothing calls"
            mistakes.append(InterfaceProblem(name, found, f"one of {', '.join(known)}", remedy))
    return lines, min(mistakes, key=lambda mistake: lines.get(mistake.what, 0), default=None)


def _wrong_parameters(own_class: Any, name: str, parameters: str) -> list[InterfaceProblem]:
    wanted = f"def {name}(self, {parameters})"
    method = getattr(own_class, name)
    if not callable(method):
        return [InterfaceProblem(name, f"{method!r}, which is no method", wanted, "")]
    if method is object.__init__ and own_class.__new__ is object.__new__:
        close = get_close_matches(name, vars(own_class), n=1)
        return [
            InterfaceProblem(name, "no such method", wanted, f"rename {close[0]}" if close else "")
        ]
    is_bound = isinstance(inspect.getattr_static(own_class, name), staticmethod | classmethod)
    positional, _, named = parameters.partition("*, ")
    given: list[object] = [None] * positional.count(",")
    if not named:
        given.append(None)
    if not is_bound:
        given.append(None)  # self
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # of something built in
        return []
    try:
        signature.bind(*given, **dict.fromkeys(named.split(", ") if named else ()))
    except TypeError as error:
        found = f"def {name}{signature.replace(return_annotation=inspect.Signature.empty)}"
        return [InterfaceProblem(name, f"{found} ({error})", wanted, "")]
    return []


def missing(made: Any, interface: Interface) -> InterfaceProblem | None:
    """The mistake that an object lacks what its interface requires; None if it has it."""
    required, example = interface.required, interface.example
    if hasattr(made, required):
        return None
    own = [name for name in dir(made) if not name.startswith("__")]
    close = get_close_matches(required, own, n=1)
    remedy = f"rename {close[0]}" if close else f"add {example}"
    return InterfaceProblem(
        type(made).__name__, f"no {required}", f"a class with {example}", remedy
    )


def describe_error(error: BaseException, file: str) -> tuple[str, int | None, str]:
    """Describe an error that the class raised.

    Args:
        error: the error.
        file: the file of the class.

    Returns:
        Its text, its line in the file if it has one, and a remedy, which may be empty.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines = [error.lineno]
    remedy = ""
    if isinstance(error, AttributeError):
        given = type(error.obj)
        fields = getattr(given, "_fields", ()) or getattr(given, "__dataclass_fields__", ())
        remedy = f"it has {', '.join(fields)}" if fields else ""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")[:500]
    return text, lines[-1] if lines else None, remedy
