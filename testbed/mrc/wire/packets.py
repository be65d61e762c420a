"""A WRITE as a value, what all packets share, and the reasons why bytes are refused."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview


class Write(NamedTuple):
    """One packet of an RDMA WRITE. `va` is this packet's own, `dma_length` the whole message's.

    Only the last packet of a WRITE with immediate has an `immediate` (32 bits). `tx_timestamp` is
    None where there is no TSETH. Its unit is 128 ns, or the sender's own (`tsr`), and it is a
    timestamp if `ftype` is 1.
    """

    source: bytes
    destination: bytes
    ev: int
    qpn: int
    psn: int
    opcode: int
    ack_request: bool
    retransmitted: bool
    rqmsn: int
    msn: int
    tx_timestamp: int | None
    va: int
    rkey: int
    dma_length: int
    payload: Buffer
    immediate: int | None = None
    tsr: bool = False
    ftype: int = 1


@dataclass(frozen=True, slots=True)
class PacketFields:
    """The first fields of most packets; `ev` is the EV that the packet travels on."""

    source: bytes
    destination: bytes
    ev: int
    qpn: int


@dataclass(frozen=True, slots=True)
class TrimmedWrite(PacketFields):
    """What a trimming switch left of a WRITE. No iCRC covers it: a hint, no evidence."""

    psn: int
    msn: int
    tx_timestamp: int | None


class DecodeReason(Enum):
    """Why bytes are not a packet of MRC."""

    TRUNCATED = "shorter than its headers"
    NOT_IPV6 = "the inner header is not IPv6"
    NOT_UDP = "the next header is not UDP"
    BAD_LENGTH = "a length field disagrees with the packet"
    WRONG_PORT = "not a port of MRC"
    WRONG_VERSION = "the transport version of the BTH is not 0"
    UNKNOWN_OPCODE = "not an opcode of MRC"
    BAD_ICRC = "the iCRC does not match: corrupted on the way"
    BAD_FIELD = "a field holds a value that is not defined"


class DecodeError(Exception):
    """Bytes that are not a valid packet; `reason` says why."""

    def __init__(self, reason: DecodeReason) -> None:
        super().__init__(reason.value)
        self.reason = reason
