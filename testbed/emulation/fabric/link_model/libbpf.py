"""The functions of libbpf that the fabric needs, through ctypes: load an object, share its maps.

Only the shared library is needed at run time; every distribution installs it with iproute2.
"""

import ctypes
import os
from ctypes import CDLL, CFUNCTYPE, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from testbed.model.closeable import Closeable
from testbed.sandbox.system_calls import last_error

LIBRARY = "libbpf.so.1"

_Print = CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)


@cache
def _library() -> CDLL:
    """Load the library and declare the functions that are used.

    Raises:
        OSError: it is not installed.
    """
    library = CDLL(LIBRARY, use_errno=True)
    for name, result, *arguments in (
        ("bpf_object__open_file", c_void_p, c_char_p, c_void_p),
        ("bpf_object__load", c_int, c_void_p),
        ("bpf_object__close", None, c_void_p),
        ("bpf_object__find_map_by_name", c_void_p, c_void_p, c_char_p),
        ("bpf_object__find_program_by_name", c_void_p, c_void_p, c_char_p),
        ("bpf_map__set_max_entries", c_int, c_void_p, c_uint32),
        ("bpf_map__fd", c_int, c_void_p),
        ("bpf_program__fd", c_int, c_void_p),
        ("bpf_obj_pin", c_int, c_int, c_char_p),
        ("bpf_obj_get", c_int, c_char_p),
        ("libbpf_set_print", c_void_p, _Print),
    ):
        function = getattr(library, name)  # the library keeps it, unlike library[name]
        function.restype, function.argtypes = result, arguments
    return library


@cache
def _vsnprintf() -> Any:
    function = CDLL(None).vsnprintf
    function.restype, function.argtypes = c_int, (c_char_p, c_size_t, c_char_p, c_void_p)
    return function


class _Messages:
    """Collects the warnings that libbpf would print to stderr: the reasons of a failure."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._callback = _Print(self._append)  # kept alive: libbpf holds a plain pointer
        _library().libbpf_set_print(self._callback)

    def _append(self, level: int, template: bytes, arguments: int) -> int:
        if level == 0:  # LIBBPF_WARN
            text = ctypes.create_string_buffer(1024)
            _vsnprintf()(text, len(text), template, arguments)
            self._lines.append(text.value.decode(errors="replace").strip())
        return 0

    def stop(self) -> str:
        """Stop collecting; returns the first lines."""
        _library().libbpf_set_print(_Print())
        return "; ".join(self._lines[:3])


class BpfObject(Closeable):
    """An object file of programs and maps, loaded into the kernel until it is closed.

    Attached programs, and pinned or mapped maps, stay in the kernel afterwards.
    """

    def __init__(self, file: Path) -> None:
        """Read the file.

        Raises:
            OSError: the file or the library does not exist, or the file is not an object file.
        """
        self._messages = _Messages()
        self._object = _library().bpf_object__open_file(os.fsencode(file), None)
        if not self._object:
            raise self._error(f"open {file}")

    def close(self) -> None:
        """Release the object."""
        _library().bpf_object__close(self._object)
        self._messages.stop()

    def resize_map(self, name: str, entries: int) -> None:
        """Set how many entries a map has; to be called before `load`."""
        if _library().bpf_map__set_max_entries(self._find("map", name), entries):
            raise self._error(f"resize the map {name}")

    def load(self) -> None:
        """Have the kernel verify and load the programs.

        Raises:
            OSError: the kernel refused; with the reason that libbpf reports.
        """
        if _library().bpf_object__load(self._object):
            raise self._error("load")

    def map_fd(self, name: str) -> int:
        """Descriptor of a loaded map, valid until `close`."""
        return int(_library().bpf_map__fd(self._find("map", name)))

    def program_fd(self, name: str) -> int:
        """Descriptor of a loaded program, valid until `close`."""
        return int(_library().bpf_program__fd(self._find("program", name)))

    def _find(self, kind: str, name: str) -> int:
        """A pointer to a map or a program."""
        find = getattr(_library(), f"bpf_object__find_{kind}_by_name")
        pointer: int | None = find(self._object, name.encode())
        if not pointer:
            raise self._error(f"find the {kind} {name}")
        return pointer

    def _error(self, action: str) -> OSError:
        return last_error(action, self._messages.stop())


def pin(fd: int, place: Path) -> None:
    """Give a map or program a name in a BPF file system, so that other processes can open it.

    Raises:
        OSError: there is no BPF file system.
    """
    if _library().bpf_obj_pin(fd, os.fsencode(place)):
        raise last_error(f"pin {place}")


def open_pinned(place: Path) -> int:
    """Open what was pinned; the caller closes the descriptor.

    Raises:
        OSError: there is nothing of that name.
    """
    fd: int = _library().bpf_obj_get(os.fsencode(place))
    if fd < 0:
        raise last_error(f"open {place}")
    return fd
