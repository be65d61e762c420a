"""The little of libbpf that the fabric needs, through ctypes: load an object, share its maps.

Only the shared library is needed at run time; iproute2 brings it on every distribution.
"""

import ctypes
import os
from ctypes import CDLL, CFUNCTYPE, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from testbed.model.closeable import Closeable

LIBRARY = "libbpf.so.1"

_Print = CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)


@cache
def _library() -> CDLL:
    """Load the library and declare what is used of it.

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
        ("bpf_map__value_size", c_uint32, c_void_p),
        ("bpf_map__fd", c_int, c_void_p),
        ("bpf_program__fd", c_int, c_void_p),
        ("bpf_obj_pin", c_int, c_int, c_char_p),
        ("bpf_obj_get", c_int, c_char_p),
        ("libbpf_set_print", c_void_p, _Print),
    ):
        function = getattr(library, name)  # unlike library[name], kept
        function.restype, function.argtypes = result, arguments
    return library


@cache
def _vsnprintf() -> Any:
    function = CDLL(None).vsnprintf
    function.restype, function.argtypes = c_int, (c_char_p, c_size_t, c_char_p, c_void_p)
    return function


class _Listener:
    """Collects what libbpf would print to stderr: the reasons of a failure."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._callback = _Print(self._hear)  # kept alive: libbpf holds a plain pointer
        _library().libbpf_set_print(self._callback)

    def _hear(self, level: int, template: bytes, arguments: int) -> int:
        if level == 0:  # LIBBPF_WARN
            text = ctypes.create_string_buffer(1024)
            _vsnprintf()(text, len(text), template, arguments)
            self._lines.append(text.value.decode(errors="replace").strip())
        return 0

    def stop(self) -> str:
        """Hear no more; returns the first lines heard."""
        _library().libbpf_set_print(_Print())
        return "; ".join(self._lines[:3])


class BpfObject(Closeable):
    """An object file of programs and maps, loaded into the kernel until it is closed.

    Programs live on where they are attached, maps where they are pinned or mapped.
    """

    def __init__(self, file: Path) -> None:
        """Read it.

        Raises:
            OSError: it, or the library, is not there, or it is no object file.
        """
        self._listener = _Listener()
        self._object = _library().bpf_object__open_file(os.fsencode(file), None)
        if not self._object:
            raise self._error(f"open {file}")

    def close(self) -> None:
        """Let go of it."""
        _library().bpf_object__close(self._object)
        self._listener.stop()

    def resize_map(self, name: str, entries: int) -> None:
        """Say how many entries a map has; before `load`."""
        if _library().bpf_map__set_max_entries(self._map(name), entries):
            raise self._error(f"resize the map {name}")

    def value_size(self, name: str) -> int:
        """Size of a map's values in bytes."""
        size: int = _library().bpf_map__value_size(self._map(name))
        return size

    def load(self) -> None:
        """Have the kernel verify and take the programs.

        Raises:
            OSError: it refused; with the reason as far as libbpf says it.
        """
        if _library().bpf_object__load(self._object):
            raise self._error("load")

    def map_fd(self, name: str) -> int:
        """Descriptor of a loaded map, valid until `close`."""
        fd: int = _library().bpf_map__fd(self._map(name))
        return fd

    def program_fd(self, name: str) -> int:
        """Descriptor of a loaded program, valid until `close`."""
        found = _library().bpf_object__find_program_by_name(self._object, name.encode())
        if not found:
            raise self._error(f"find the program {name}")
        fd: int = _library().bpf_program__fd(found)
        return fd

    def _map(self, name: str) -> int:
        found: int | None = _library().bpf_object__find_map_by_name(self._object, name.encode())
        if not found:
            raise self._error(f"find the map {name}")
        return found

    def _error(self, what: str) -> OSError:
        code = ctypes.get_errno()
        said = self._listener.stop()
        return OSError(code, f"{what}: {os.strerror(code)}" + (f" ({said})" if said else ""))


def pin(fd: int, place: Path) -> None:
    """Give a map or program a name in a BPF file system, by which other processes open it.

    Raises:
        OSError: there is no BPF file system.
    """
    if _library().bpf_obj_pin(fd, os.fsencode(place)):
        code = ctypes.get_errno()
        raise OSError(code, f"pin {place}: {os.strerror(code)}")


def open_pinned(place: Path) -> int:
    """Open what was pinned; the caller closes the descriptor.

    Raises:
        OSError: there is nothing of that name.
    """
    fd: int = _library().bpf_obj_get(os.fsencode(place))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"open {place}: {os.strerror(code)}")
    return fd
