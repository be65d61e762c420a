"""Classic BPF programs by which the kernel selects the packets of a socket."""

import socket
import struct
from collections.abc import Sequence
from ctypes import addressof, create_string_buffer
from typing import Final

_SO_ATTACH_FILTER: Final = 26
_INSTRUCTION: Final = struct.Struct("=HBBI")

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand: linux/filter.h, struct sock_filter."""


def attach_filter(receiver: socket.socket, program: Sequence[Instruction]) -> None:
    """Have the kernel hand over only the packets that a program selects.

    Raises:
        OSError: the kernel refused the program.
    """
    code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)
    kept = create_string_buffer(code, len(code))  # until the kernel has copied it
    head = struct.pack("@HP", len(program), addressof(kept))
    receiver.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)
