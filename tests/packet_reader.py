"""Takes an inner packet apart, header by header, by the declarations alone."""

from testbed.mrc.wire.headers import IMMDT, TSETH, Header
from testbed.mrc.wire.kinds import COMMON, IMMEDIATE_OPCODES, KIND_OF


def headers_behind(opcode: int, *, ts: bool) -> tuple[Header, ...]:
    """The headers behind the BTH of a packet; `ts` is its flag in the BTH.

    Raises:
        KeyError: the opcode is none of MRC's.
    """
    return tuple(
        header
        for header in KIND_OF[opcode].headers
        if not (header is TSETH and not ts)
        and not (header is IMMDT and opcode not in IMMEDIATE_OPCODES)
    )


def read(packet: bytes) -> list[tuple[Header, dict[str, int]]]:
    """Every header of an inner packet with its fields, in order; payload and iCRC are left out.

    Raises:
        KeyError: the opcode is none of MRC's.
        ValueError: the packet ends within a header.
    """
    headers: list[tuple[Header, dict[str, int]]] = []
    at = 0
    for header in COMMON:
        headers.append((header, header.read(packet, at)))
        at += header.size
    bth = headers[-1][1]
    for header in headers_behind(bth["opcode"], ts=bool(bth["ts"])):
        headers.append((header, header.read(packet, at)))
        at += header.size
    return headers
