"""The numbers of RoCEv2's wire format, each once (IBTA architecture 1.x, chapter 9; annex A17)."""

from enum import IntEnum
from typing import Final

PSN_WINDOW: Final = 1 << 23
"""PSNs that may be outstanding: half of the number space (IBTA 9.7.1)."""

FLAG_ACK_REQUEST: Final = 0x80
"""In byte 8 of the BTH."""

BECN: Final = 0x40
"""In byte 4 of the BTH, set in a CNP (annex A17)."""

CNP_RESERVED_BYTES: Final = 16
"""What a CNP carries behind its BTH: zeros (annex A17)."""


class Opcode(IntEnum):
    """BTH opcodes of a reliable connection, and the CNP's (IBTA 9.2; annex A17)."""

    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMMEDIATE = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMMEDIATE = 0x0B
    ACKNOWLEDGE = 0x11
    CNP = 0x81


class Nak(IntEnum):
    """Why a responder refuses a packet: the AETH's NAK codes (IBTA 9.7.5.2.8)."""

    PSN_SEQUENCE_ERROR = 0
    INVALID_REQUEST = 1
    REMOTE_ACCESS_ERROR = 2
