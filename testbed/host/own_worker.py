"""The process that runs a user's class for `own_process.py`; started by its path, in isolation.

It uses the standard library and `own_class.py`. The first line that it reads has the class and the
arguments of its constructor; each further line is a batch of calls, of which the last is answered.
What the class prints is dropped.

Where the system allows namespaces, this program runs twice: the first process makes them and waits;
the second is the only process in them, so the class can neither see nor signal any other.
"""

import ast
import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import make_dataclass
from functools import cache
from typing import Any, NoReturn

try:  # now: as the user nobody it may not be able to read Python's files
    import resource
except ImportError:  # Windows, which starts no such process
    assert sys.platform == "win32"  # noqa: S101

OPEN_FILES = 64


def _own_class() -> Any:
    """The module `own_class.py` beside this file."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "own_class.py")  # noqa: PTH100, PTH118, PTH120
    spec = importlib.util.spec_from_file_location("own_class", path)
    assert spec is not None  # noqa: S101 - the file is there
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_class"] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    return module


OWN_CLASS = _own_class()

_NOBODY = 65534
_NEW_MOUNTS, _NEW_NETWORK, _NEW_IPC = 0x00020000, 0x40000000, 0x08000000
_NEW_PROCESSES, _NEW_USER = 0x20000000, 0x10000000
_DIE_WITH_PARENT, _NO_NEW_PRIVILEGES = 1, 38
_SIGNALLED = 128
_MOST = 1 << 63
_MOUNT_SETATTR, _HERE, _RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 1
_PRIVATE_MOUNTS = 1 << 18
_MS_BIND, _MS_RECURSIVE, _MS_PRIVATE, _MNT_DETACH = 1 << 12, 1 << 14, 1 << 18, 2
_EMPTY_PLACES = ("/mnt", "/media", "/srv", "/opt", "/home", "/tmp", "/var", "/run")  # noqa: S108
"""Directories of which one is covered by the new root while it is made."""

_LANDLOCK_CREATE, _LANDLOCK_ADD_PATH, _LANDLOCK_RESTRICT = 444, 445, 446
_ALL_ACCESS = (1 << 13) - 1
"""What the first version of Landlock knows: execute, write, read, list, make, remove."""

_READ_ACCESS = 1 << 2 | 1 << 3
_PATH_BENEATH = 1


class OutOfTimeError(TimeoutError):
    """The CPU time is used up."""


class _Rules(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def confine(cpu_s: int, memory_bytes: int) -> list[str]:
    """Confine this process to what an algorithm needs; return the restrictions in force."""
    held = _no_files() if sys.platform == "linux" else []
    return held + _user() + _limits(cpu_s, memory_bytes)


def in_namespaces() -> list[str]:
    """Move this process into namespaces of its own: network, IPC, mounts, and PIDs of its children.

    It needs root or a user namespace. Returns the restrictions in force then; none if the system
    does not allow namespaces.
    """
    if sys.platform != "linux":
        return []
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _NEW_NETWORK | _NEW_IPC | _NEW_PROCESSES | _NEW_MOUNTS
    flags |= 0 if os.geteuid() == 0 else _NEW_USER
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(flags):
        return []
    held = ["namespaces of its own (network, IPC, processes, mounts)"]
    if flags & _NEW_USER:
        _keep_user(user, group)
    if _root_of_its_own(libc):
        held.append("no directories but Python's and the testbed's")
    else:
        held.append("no root of its own: names and sizes of files can be seen")
    attributes = _MountAttributes(attr_set=_READ_ONLY, propagation=_PRIVATE_MOUNTS)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    where = (_HERE, b"/", _RECURSIVE, ctypes.byref(attributes), size)
    if libc.syscall(_MOUNT_SETATTR, *where) == 0:
        held.append("all file systems read only")
    return held


def _keep_user(user: int, group: int) -> None:
    """Stay the same user in the new user namespace: nobody else could make a directory in it."""
    with contextlib.suppress(OSError):
        for name, text in (
            ("setgroups", "deny"),
            ("gid_map", f"{group} {group} 1"),
            ("uid_map", f"{user} {user} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(text)


def _root_of_its_own(libc: ctypes.CDLL) -> bool:
    """Move this process to a root that has no other directories than it needs.

    Landlock forbids to open files, but not to ask for their names and sizes.
    """
    needed = _needed_paths()
    place = next((p for p in _EMPTY_PLACES if os.path.isdir(p) and _has_none(p, needed)), None)  # noqa: PTH112
    if place is None or not hasattr(libc, "pivot_root"):
        return False
    if libc.mount(None, b"/", None, _MS_RECURSIVE | _MS_PRIVATE, None):
        return False
    if libc.mount(b"tmpfs", place.encode(), b"tmpfs", 0, b"mode=755"):
        return False
    try:
        for path in needed:
            _bring(libc, path, place + path)
        _move_to(libc, place)
    except OSError:
        libc.umount2(place.encode(), _MNT_DETACH)
        os.chdir("/")
        return False
    return True


def _move_to(libc: ctypes.CDLL, place: str) -> None:
    """Make a directory the root, and leave the old one.

    Raises:
        OSError: the system refuses.
    """
    os.chdir(place)
    if libc.pivot_root(b".", b"."):
        raise OSError(ctypes.get_errno(), "pivot_root")
    libc.umount2(b".", _MNT_DETACH)  # the old root, which now lies over the new one
    os.chdir("/")


def _needed_paths() -> list[str]:
    """The directories and files that Python and this program need, and what links lead to."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    named = {sys.prefix, sys.base_prefix, package, "/usr", "/lib", "/lib64"}
    named |= {"/etc/ld.so.cache", os.devnull}
    found: list[str] = []
    for path in sorted(named | set(map(os.path.realpath, named))):
        inside = any(path.startswith(f"{other}/") for other in found if not os.path.islink(other))  # noqa: PTH114
        if os.path.lexists(path) and not inside:
            found.append(path)
    return found


def _has_none(place: str, paths: list[str]) -> bool:
    """Whether a directory has none of the paths, so that it can be covered."""
    return not any(f"{path}/".startswith(f"{place}/") for path in paths)


def _bring(libc: ctypes.CDLL, path: str, there: str) -> None:
    """Make a directory, a file or a link of this system also below the new root.

    Raises:
        OSError: it cannot be.
    """
    os.makedirs(os.path.dirname(there), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120
    if os.path.islink(path):  # noqa: PTH114
        os.symlink(os.readlink(path), there)  # noqa: PTH115, PTH211
        return
    if os.path.isdir(path):  # noqa: PTH112
        os.mkdir(there, mode=0o755)  # noqa: PTH102
    else:
        os.close(os.open(there, os.O_CREAT | os.O_WRONLY))
    if libc.mount(path.encode(), there.encode(), None, _MS_BIND | _MS_RECURSIVE, None):
        raise OSError(ctypes.get_errno(), "mount", path)


def _wait_for_the_second(held: list[str]) -> int:
    """Start this program again, as the first process of the new namespaces; return its status.

    It ends when this process is asked to end, or when its parent has ended.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    second = subprocess.Popen([sys.executable, "-I", __file__, *held])  # noqa: S603 - this program
    signal.signal(signal.SIGTERM, lambda *_: second.kill())
    libc.prctl(_DIE_WITH_PARENT, signal.SIGTERM, 0, 0, 0)
    silence = os.open(os.devnull, os.O_RDWR)
    for pipe in (0, 1):  # so that the pipes end with the second process
        os.dup2(silence, pipe)
    status = second.wait()
    return status if status >= 0 else _SIGNALLED - status


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


def _limits(cpu_s: int, memory_bytes: int) -> list[str]:
    def end(*_: object) -> NoReturn:
        raise OutOfTimeError

    signal.signal(signal.SIGXCPU, end)  # names the line; what goes on nevertheless is killed
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    wanted = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if hasattr(resource, "RLIMIT_NPROC"):
        wanted[resource.RLIMIT_NPROC] = 0
    for what, limit in wanted.items():
        with contextlib.suppress(ValueError, OSError):  # macOS refuses some
            resource.setrlimit(what, (limit, limit))
    return [f"limits: {cpu_s} s of CPU, {memory_bytes >> 20} MiB, no file written, no new process"]


def _plain(value: Any) -> Any:
    """A number or None, or else a mapping with the text of the value."""
    if isinstance(value, int) and abs(value) >= _MOST:
        return {"repr": "a number of more than 63 bits"}
    if value is not None and not isinstance(value, int | float):
        return {"repr": OWN_CLASS.shown(value)}
    return value


def _objects(values: list[Any]) -> list[Any]:
    """Arguments of a method: mappings become what they were before they were sent."""
    return [_object(value) for value in values]


def _object(value: Any) -> Any:
    if isinstance(value, dict):
        fields = value["fields"]
        return _type(value["name"], value["kind"], tuple(fields))(**fields)
    return [_object(part) for part in value] if isinstance(value, list) else value


@cache
def _type(name: str, kind: str, fields: tuple[str, ...]) -> Any:
    """A type like the testbed's own of this name, which the class may compare, copy or hash."""
    if kind == "named tuple":
        return namedtuple(name, fields)  # noqa: PYI024 - the fields come with the value
    return make_dataclass(name, fields, frozen=True, slots=True)


def _answer(action: Callable[[], dict[str, Any]], code: Any, called: list[str]) -> bytes:
    """What an action returns, or the error that it raised with its line, as a line of JSON.

    Args:
        action: calls the class.
        code: the class, as text.
        called: the methods that were called, of which the last raised the error.
    """
    try:
        reply = action()
    except BaseException as error:  # noqa: BLE001 - whatever the user's code does
        text, line, remedy = OWN_CLASS.describe_error(error, code.file, code.files)
        reply = {"error": text, "line": line, "what": called[-1], "remedy": remedy}
        reply["late"] = isinstance(error, OutOfTimeError)
    return json.dumps(reply).encode() + b"\n"


def _import_ahead(source: str) -> None:
    """Import what a class imports of Python and of the testbed: files cannot be opened later."""
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except SyntaxError:
        return  # reported when it is compiled
    names = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for name in names:
        if name.endswith("__main__"):  # a program, which would run before this process is confined
            continue
        if name.partition(".")[0] in {"testbed", *sys.stdlib_module_names}:
            with contextlib.suppress(Exception, SystemExit):  # reported when the class imports it
                importlib.import_module(name)


class _OwnLibraryOnly:
    """Refuses modules that another machine may not have: grading knows Python's own alone."""

    def find_spec(self, name: str, *_: object) -> None:
        """Leave a module to the other finders, or refuse it."""
        if name.partition(".")[0] not in {"testbed", *sys.stdlib_module_names}:
            text = f"{name} is not of Python's own library; graders may not have it"
            raise ModuleNotFoundError(text, name=name)


def main() -> None:
    """Run the class in namespaces of its own where that is possible, and otherwise here."""
    held = sys.argv[1:] or in_namespaces()
    if held and not sys.argv[1:]:
        sys.exit(_wait_for_the_second(held))
    serve(held)


def serve(held: list[str]) -> None:
    """Make the object, then answer each batch of calls.

    Args:
        held: the restrictions that are in force already.
    """
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    first = json.loads(requests.readline())
    interface = OWN_CLASS.Interface(**first["interface"])
    code = OWN_CLASS.Code(*first["code"])
    for source in (code.source, *code.files.values()):
        _import_ahead(source)
    sys.meta_path.insert(0, _OwnLibraryOnly())
    held += confine(first["cpu_s"], first["memory_bytes"])
    replies.write(json.dumps({"held": held}).encode() + b"\n")
    made: list[Any] = []
    record = OWN_CLASS.Record()  # of which nothing leaves this process

    def make() -> dict[str, Any]:
        given = _objects(first["arguments"]), first["parameters"], record
        new = OWN_CLASS.make(code, interface, *given)
        made.append(new.object)
        record.now_ns = 0
        return {"lines": new.lines, "mistake": new.mistake, "takes": new.takes}

    replies.write(_answer(make, code, [code.name]))
    for line in requests:
        calls = json.loads(line)
        called: list[str] = []

        def work(calls: list[Any] = calls, called: list[str] = called) -> Any:
            value = None
            for kind, name, arguments, named in calls:
                called.append(name)
                value = getattr(made[0], name, None)
                if kind == "call" and value is not None:
                    given = {key: _object(each) for key, each in named.items()}
                    value = value(*_objects(arguments), **given)
            return {"value": _plain(value)}

        replies.write(_answer(work, code, called))


if __name__ == "__main__":
    main()
