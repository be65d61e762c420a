"""The packets of MRC as values, and the reasons why bytes are refused."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from testbed.mrc.constants import EndpointOp, EvMark, NackReason, NakCode

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
class Header:
    """The first fields of most packets; `ev` is the EV that the packet travels on."""

    source: bytes
    destination: bytes
    ev: int
    qpn: int


@dataclass(frozen=True, slots=True)
class TrimmedWrite(Header):
    """What a trimming switch left of a WRITE. No iCRC covers it: a hint, no evidence."""

    psn: int
    msn: int
    tx_timestamp: int | None


@dataclass(frozen=True, slots=True)
class Ack(Header):
    """Transport acknowledgement: `psn` and all before it have arrived.

    `msn` (24 bits here) counts the messages completed. With `error` it is a NAK: the WRITE that
    `psn` belongs to has failed. An ACK reflects no EV.
    """

    psn: int
    msn: int
    error: NakCode | None = None


@dataclass(frozen=True, slots=True)
class Sack(Header):
    """Selective acknowledgement: SETH and CC_STATE.

    `ack_psn_offset` names the packet that triggered it, relative to `cack_psn` (or is the probe's
    id where `probe_reply`), and `reflected_ev` the EV that packet came on. `mpr` is the responder
    window in units of 128 PSNs, 0 if it is not advertised; `rcvd_bytes` counts units of 256 bytes,
    modulo 2^24. `retransmitted` echoes the flag of the packet that triggered it, `spdcid` is the
    low half of the sender's QPN. Where `cc_type` is not 0, the fields from `tx_timestamp` on are 0:
    CC_STATE has another layout.
    """

    retransmitted: bool
    spdcid: int
    cc_type: int
    mark: EvMark
    probe_reply: bool
    ack_psn_offset: int
    reflected_ev: int
    cack_psn: int
    mpr: int
    sack_offset: int
    bitmap: int
    tx_timestamp: int
    ooo_count: int
    restore_cwnd: bool
    rcv_cwnd_pen: int
    rcvd_bytes: int


@dataclass(frozen=True, slots=True)
class Nack(Header):
    """Negative acknowledgement of the packet `nack_psn`, sent at `tx_timestamp`."""

    spdcid: int
    reason: NackReason
    reflected_ev: int
    nack_psn: int
    tx_timestamp: int


@dataclass(frozen=True, slots=True)
class ReliabilityProbe(Header):
    """Asks the peer QP for a SACK with `probe_reply`; consumes no PSN.

    `tx_timestamp`, `tsr` and `ftype` are as in a `Write`.
    """

    spdcid: int
    probe_id: int
    tx_timestamp: int
    tsr: bool = False
    ftype: int = 1


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """A request to the peer's endpoint (QPN 2): an EV probe or a port status update.

    `port_mask` has bit p set while port p is reachable. The timestamp is as in a `Write`.
    """

    source: bytes
    destination: bytes
    ev: int
    op: EndpointOp
    request_id: int
    port_mask: int
    tx_timestamp: int
    tsr: bool = False
    ftype: int = 1


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """The answer to the `EndpointRequest` with this id, and that request's timestamp.

    `op` is what bits 3:2 say. Sources disagree on its place, so only the id counts.
    """

    source: bytes
    destination: bytes
    ev: int
    op: int
    request_id: int
    tx_timestamp: int


Control = Ack | Sack | Nack | ReliabilityProbe | EndpointRequest | EndpointResponse
Packet = Write | TrimmedWrite | Control


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
