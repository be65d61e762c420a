"""The process that runs a user's class for `own_process.py`; started by its path, in isolation.

It uses the standard library alone. The first line that it reads has the class and the arguments of
its constructor; each further line is a batch of calls, of which the last is answered. What the
class prints is dropped.
"""

import ast
import contextlib
import ctypes
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

CPU_S = 30
MEMORY_BYTES = 1 << 30
OPEN_FILES = 64

_NOBODY = 65534
_NEW_NETWORK, _NEW_IPC, _NEW_USER = 0x40000000, 0x08000000, 0x10000000
_NO_NEW_PRIVILEGES = 38
_LANDLOCK_CREATE, _LANDLOCK_ADD_PATH, _LANDLOCK_RESTRICT = 444, 445, 446
_ALL_ACCESS = (1 << 13) - 1
"""What the first version of Landlock knows: execute, write, read, list, make, remove."""

_READ_ACCESS = 1 << 2 | 1 << 3
_PATH_BENEATH = 1


class _Rules(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def confine() -> list[str]:
    """Take from this process what an algorithm does not need; return what could be taken."""
    held = []
    if sys.platform == "linux":
        held += _namespaces() + _no_files()
    held += _user()
    return held + _limits()


def _namespaces() -> list[str]:
    """Leave the network and the IPC of the machine, as root or in a user namespace."""
    flags = _NEW_NETWORK | _NEW_IPC | (0 if os.geteuid() == 0 else _NEW_USER)
    left = ctypes.CDLL(None, use_errno=True).unshare(flags) == 0
    return ["namespaces of its own (network, IPC)"] if left else []


def _no_files() -> list[str]:
    """Allow no access to files but reading those of Python, by Landlock."""
    libc = ctypes.CDLL(None, use_errno=True)
    rules = _Rules(_ALL_ACCESS)
    ruleset = libc.syscall(_LANDLOCK_CREATE, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset < 0:
        return []
    try:
        for path in {sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64"}:
            with contextlib.suppress(OSError):
                parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
                beneath = _PathBeneath(_READ_ACCESS, parent)
                libc.syscall(_LANDLOCK_ADD_PATH, ruleset, _PATH_BENEATH, ctypes.byref(beneath), 0)
                os.close(parent)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        refused = libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
    return [] if refused else ["no files but Python's, read only (Landlock)"]


def _user() -> list[str]:
    """Become nobody, if this is root's process."""
    if os.geteuid() != 0:
        return []
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    return ["the user nobody"]


def _limits() -> list[str]:
    import resource  # noqa: PLC0415 - not on every system

    wanted = {
        resource.RLIMIT_CPU: CPU_S,
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if hasattr(resource, "RLIMIT_NPROC"):
        wanted[resource.RLIMIT_NPROC] = 0
    for what, limit in wanted.items():
        with contextlib.suppress(ValueError, OSError):  # macOS refuses some
            resource.setrlimit(what, (limit, limit))
    return [f"limits: {CPU_S} s of CPU, {MEMORY_BYTES >> 20} MiB, no file written, no new process"]


def _arguments(values: list[Any]) -> list[Any]:
    """The arguments of a constructor: mappings become objects with these attributes."""
    return [_object(value) for value in values]


def _object(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**value)
    return [_object(part) for part in value] if isinstance(value, list) else value


def _answer(action: Callable[[], Any], file: str) -> bytes:
    """What an action returns, or the error that it raised with its line, as a line of JSON."""
    try:
        value = action()
        if value is not None and not isinstance(value, int | float):
            value = {"repr": repr(value)[:200]}
        reply = {"value": value}
    except BaseException as error:  # noqa: BLE001 - whatever the user's code does
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        text = f"{type(error).__name__}: {error}".removesuffix(": ")[:500]
        reply = {"error": text, "line": lines[-1] if lines else None}
    return json.dumps(reply).encode() + b"\n"


def _import_ahead(source: str) -> None:
    """Import what a class imports of Python and of the testbed: files cannot be opened later."""
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except SyntaxError:
        return  # said when it is compiled
    names = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for name in names:
        if name.partition(".")[0] in {"testbed", *sys.stdlib_module_names}:
            with contextlib.suppress(ImportError):  # said when the class imports it
                importlib.import_module(name)


def main() -> None:
    """Make the object, then answer each batch of calls."""
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    first = json.loads(requests.readline())
    _import_ahead(first["source"])
    held = confine()
    replies.write(json.dumps({"held": held}).encode() + b"\n")
    made: list[Any] = []
    module = ModuleType(first["name"])

    def make() -> bool:
        code = compile(first["source"], first["file"], "exec")
        exec(code, module.__dict__)  # noqa: S102 - that is what this process is for
        made.append(getattr(module, first["name"])(*_arguments(first["arguments"])))
        return hasattr(made[0], first["method"])

    replies.write(_answer(make, first["file"]))
    for line in requests:
        calls = json.loads(line)

        def work(calls: list[Any] = calls) -> Any:
            value = None
            for kind, name, arguments, named in calls:
                value = getattr(made[0], name, None)
                if kind == "call" and value is not None:
                    value = value(*arguments, **named)
            return value

        replies.write(_answer(work, first["file"]))


if __name__ == "__main__":
    main()
