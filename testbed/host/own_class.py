"""Checks a class of the user's own, and describes the errors that its code raises.

It uses the standard library alone: `own_worker.py`, which runs such a class in another process,
loads this file by its path.
"""

import builtins
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Final, NamedTuple

NO_ERROR: Final = "code that raises no error"

_LONGEST_VALUE: Final = 200


@dataclass(frozen=True, slots=True)
class Interface:
    """The interface that a class of the user's own has to have.

    Attributes:
        required: the method or attribute that no class may lack.
        example: how a class defines it.
        methods: the parameters of each method, without `self`.
        also: a parameter that a method may have besides; then it is given by name.
    """

    required: str
    example: str
    methods: dict[str, str]
    also: dict[str, str]


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
    {"__init__": "record", "pick": "ports"},
)
"""`mrc.PathSelector`."""

CONTROLLER: Final = Interface(
    "window",
    "self.window, a number of bytes that __init__ sets",
    {"__init__": "path", "on_sack": "sack", "on_nack": "nack", "on_loss": "loss"},
    {"__init__": "record"},
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


class Code(NamedTuple):
    """A class or function of the user's own as text, with the files of its folder that it imports.

    Attributes:
        name: its name.
        file: its file's path, as tracebacks name it.
        source: the content of the file.
        files: the content of those that it imports, by their paths.
    """

    name: str
    file: str
    source: str
    files: Mapping[str, str]


class Ports(NamedTuple):
    """The ports of the host as a path is picked; each is the place of its plane.

    Packets that were picked in the same round, and wait to be handed over, count as full ones.

    Attributes:
        room: whether the port takes a full packet without letting it wait for others' rounds.
        queued: bytes on the wire that the port has still to send.
    """

    room: list[bool]
    queued: list[int]


_MOST_NAMES, _LONGEST_NAME = 100, 40


class Record:
    """Takes what a class records of its own: a class that has a parameter `record` is given one.

    Attributes:
        now_ns: the time of the call that the class is in; None before the first.
        counts: what was counted so far, by name.
        changed: the names of what was counted since that was recorded.
    """

    def __init__(self, append: Callable[[int, str, float], None] | None = None) -> None:
        """Hand events to `append`, as time in ns, name and value; None drops them."""
        self.now_ns: int | None = None
        self.counts: dict[str, float] = {}
        self.changed: set[str] = set()
        self._names: set[str] = set()
        self._append = append

    def count(self, name: str, by: float = 1) -> None:
        """Add to a counter, whose value is recorded 16 times in a round trip while it changes.

        Raises:
            ValueError: the name is too long, or one too many; or the number is not finite.
        """
        counted = self.counts.get(name, 0) + by
        self._check(name, counted)
        self.counts[name] = counted
        self.changed.add(name)

    def event(self, name: str, value: float = 0) -> None:
        """Record that something has happened now, with a number that says more.

        Raises:
            ValueError: as for `count`; or it is called in `__init__`, which knows no time.
        """
        self._check(name, value)
        if self.now_ns is None:
            raise ValueError("record.event in __init__, which knows no time")
        if self._append is not None:
            self._append(self.now_ns, name, value)

    def _check(self, name: str, number: float) -> None:
        if name not in self._names:
            if not isinstance(name, str) or not name.isidentifier() or len(name) > _LONGEST_NAME:
                limit = f"letters, digits and _, {_LONGEST_NAME} at most"
                raise ValueError(f"the name of a record is {limit}: {name!r}")
            if len(self._names) >= _MOST_NAMES:
                raise ValueError(f"{name} is one name too many: {_MOST_NAMES} at most")
            self._names.add(name)
        if not math.isfinite(number):
            raise ValueError(f"{number!r} for {name}, which is not finite")


class Made(NamedTuple):
    """What became of a class.

    Attributes:
        object: the object; None if there is a mistake.
        lines: the line of each method of the class.
        takes: the methods that have the parameter that they may have besides.
        mistake: the first mistake.
    """

    object: Any
    lines: dict[str, int]
    takes: list[str]
    mistake: InterfaceProblem | None


def make(
    code: Code,
    interface: Interface,
    arguments: Sequence[object],
    parameters: Mapping[str, object],
    record: Record,
) -> Made:
    """Make an object of a class, after a look at its methods; an error of its code is raised.

    Args:
        code: the class.
        interface: what it has to have.
        arguments: what its constructor is given by position.
        parameters: what a scenario gives it by name.
        record: what it is given if it wants to record.
    """
    own_class = load(code)
    takes = [name for name, also in interface.also.items() if _has(own_class, name, also)]
    lines, mistake = _examine(own_class, interface, [*parameters])
    if mistake is not None:
        return Made(None, lines, takes, mistake)
    given = dict(parameters)
    if "__init__" in takes:
        given[interface.also["__init__"]] = record
    made = own_class(*arguments, **given)
    return Made(made, lines, takes, _missing(made, interface))


def load(code: Code) -> Any:
    """Execute a file, and return its class or function.

    Each call executes it anew, with the files that it imports: objects share no variables. Modules
    stay in `sys.modules`, where `dataclasses` looks for what annotations name.
    """
    places = {_module_name(place): place for place in code.files}
    loaded: dict[str, ModuleType] = {}

    def bring(
        name: str,
        scope: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        names: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        first, _, below = name.partition(".")
        if level or first not in places:
            return builtins.__import__(name, scope, local, names, level)
        if below:
            raise ModuleNotFoundError(f"{first} is a file, which has no {below}", name=name)
        if first not in loaded:
            execute(first, places[first], code.files[places[first]])
        return loaded[first]

    def execute(name: str, place: str, source: str) -> ModuleType:
        module = ModuleType(f"{place}:{name}")  # no import can mean this name
        module.__package__ = ""
        if code.files:
            vars(module)["__builtins__"] = {**vars(builtins), "__import__": bring}
        sys.modules[module.__name__] = module
        loaded[name] = module  # also before it is executed: they may import each other
        exec(compile(source, place, "exec"), vars(module))  # noqa: S102 - it is the user's own
        return module

    return getattr(execute(_module_name(code.file), code.file, code.source), code.name)


def _module_name(place: str) -> str:
    return place.replace("\\", "/").rpartition("/")[2].removesuffix(".py")


def _has(own_class: Any, method: str, parameter: str) -> bool:
    try:
        return parameter in inspect.signature(getattr(own_class, method, None)).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):  # it has none, or it is built in
        return False


def _examine(
    own_class: Any, interface: Interface, parameters: Sequence[str]
) -> tuple[dict[str, int], InterfaceProblem | None]:
    """Check that each method can be called as it will be.

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
            also = interface.also.get(name, "")
            more = [also] if also and _has(own_class, name, also) else []
            more += parameters if name == "__init__" else []
            mistakes += _wrong_parameters(own_class, name, methods[name], more)
        elif name.startswith("on_") and callable(getattr(own_class, name)):
            close = get_close_matches(name, known, n=1)
            remedy = f"did you mean {close[0]}?" if close else "rename it if it is one of your own"
            found = "a method that nothing calls"
            mistakes.append(InterfaceProblem(name, found, f"one of {', '.join(known)}", remedy))
    return lines, min(mistakes, key=lambda mistake: lines.get(mistake.what, 0), default=None)


def _wrong_parameters(
    own_class: Any, name: str, parameters: str, more: Sequence[str]
) -> list[InterfaceProblem]:
    wanted = f"def {name}(self, {parameters})"
    method = getattr(own_class, name)
    if not callable(method):
        return [InterfaceProblem(name, f"{shown(method)}, which is no method", wanted, "")]
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
        signature.bind(*given, **dict.fromkeys([*(named.split(", ") if named else ()), *more]))
    except TypeError as error:
        found = f"def {name}{signature.replace(return_annotation=inspect.Signature.empty)}"
        return [InterfaceProblem(name, f"{found} ({error})", wanted, "")]
    return []


def _missing(made: Any, interface: Interface) -> InterfaceProblem | None:
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


def shown(value: object) -> str:
    """A value as a message shows it: on one line, not long, whatever its class does."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an int of more digits than Python writes, or the user's code
        text = f"a value of the type {type(value).__name__}"
    return " ".join(text.split())[:_LONGEST_VALUE]


def describe_error(
    error: BaseException, file: str, imported: Container[str] = ()
) -> tuple[str, int | None, str]:
    """Describe an error that the class raised.

    Returns:
        Its text, with file and line if it was raised in a file that the class imports; the line in
        the file of the class, if it has one; and a remedy, which may be empty.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines = [error.lineno]
    own = [frame for frame in frames if frame.filename == file or frame.filename in imported]
    remedy = ""
    if isinstance(error, AttributeError):
        given = type(error.obj)
        fields = getattr(given, "_fields", ()) or getattr(given, "__dataclass_fields__", ())
        remedy = f"it has {', '.join(fields)}" if fields else ""
    if isinstance(error, ModuleNotFoundError) and str(error).startswith("No module named"):
        remedy = f"install {error.name}, or put it as one file beside {file}"
    elif isinstance(error, ImportError) and "relative import" in str(error):
        remedy = "name the file beside it without a dot: import cache, from cache import Ring"
    text = f"{type(error).__name__}: {error}".removesuffix(": ")[:500]
    if own and own[-1].filename != file:
        text += f" ({own[-1].filename}:{own[-1].lineno})"
    return text, lines[-1] if lines else None, remedy
