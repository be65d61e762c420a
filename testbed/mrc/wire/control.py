"""The control packets: each as a value, and as bytes behind the BTH.

Formats, shifts and masks come from the declarations in `kinds.py`; `docs/wire.md` shows them.
"""

from dataclasses import dataclass
from typing import Final

from testbed.mrc.constants import (
    AETH_ACK_MASK,
    AETH_NO_CREDITS,
    ENDPOINT_QPN,
    EndpointOp,
    EvMark,
    NackReason,
    NakCode,
)
from testbed.mrc.wire.headers import BTH, IPV6, UDP, concatenated
from testbed.mrc.wire.kinds import (
    AETH,
    CC_STATE,
    EETH,
    ERTH,
    NETH,
    PETH,
    SETH,
    Buffer,
    DecodeError,
    DecodeReason,
    Opcode,
    PacketFields,
    TrimmedWrite,
    Write,
)


@dataclass(frozen=True, slots=True)
class Ack(PacketFields):
    """Transport acknowledgement: `psn` and all before it have arrived.

    `msn` (24 bits here) counts the messages completed. With `error` it is a NAK: the WRITE that
    `psn` belongs to has failed. An ACK reflects no EV.
    """

    psn: int
    msn: int
    error: NakCode | None = None


@dataclass(frozen=True, slots=True)
class Sack(PacketFields):
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
class Nack(PacketFields):
    """Negative acknowledgement of the packet `nack_psn`, sent at `tx_timestamp`."""

    spdcid: int
    reason: NackReason
    reflected_ev: int
    nack_psn: int
    tx_timestamp: int


@dataclass(frozen=True, slots=True)
class ReliabilityProbe(PacketFields):
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


RequestPacket = Write | TrimmedWrite | ReliabilityProbe
"""What a queue pair's responder receives."""
ResponsePacket = Ack | Sack | Nack
"""What a queue pair's requester receives."""
Control = ResponsePacket | ReliabilityProbe | EndpointRequest | EndpointResponse
Packet = Write | TrimmedWrite | Control


_AETH: Final = AETH.struct()
_SETH: Final = concatenated(
    SETH.format(
        "m",
        "ack_psn_offset",
        "entropy",
        "spdcid",
        "dpdcid",
        "cack_psn",
        "cc_type",
        "mpr",
        "sack_offset",
        "bitmap",
    ),
    CC_STATE.format(),
)
_NETH: Final = NETH.struct(
    "nack_reason", "entropy", "spdcid", "dpdcid", "nack_psn", "cc_type", "tx_timestamp"
)
_PETH: Final = PETH.struct("probe_id", "spdcid", "dpdcid", "tx_timestamp", "tsr")
_ERTH: Final = ERTH.struct("op", "port_status_mask", "tx_timestamp", "tsr")
_EETH: Final = EETH.struct("op", "tx_timestamp")

_BEHIND: Final = IPV6.size + UDP.size + BTH.size
"""Where the extension header begins."""

_SYNDROME: Final = AETH.shift("syndrome")
_MARK: Final = SETH.shift("m")
_PROBE_REPLY: Final = SETH.mask("pr")
_CC_TYPE: Final = SETH.shift("cc_type")
_OOO_COUNT: Final = CC_STATE.mask("ooo_count")
_RESTORE: Final = CC_STATE.shift("restore_cwnd")
_PENALTY: Final = CC_STATE.shift("rcv_cwnd_pen")
_MOST_PENALTY: Final = CC_STATE.most("rcv_cwnd_pen")
_RCVD_BYTES: Final = CC_STATE.mask("rcvd_bytes")
_TSR: Final = PETH.shift("tsr")
_FTYPE: Final = PETH.mask("ftype")
_REQUEST_OP: Final = ERTH.most("op")
_RESPONSE_OP: Final = EETH.shift("op")
_24_BITS: Final = SETH.mask("cack_psn")
_16_BITS: Final = SETH.mask("spdcid")

_MARKS: Final = (EvMark.NONE, EvMark.SKIP_ONCE, EvMark.ALWAYS_SKIP, EvMark.NONE)
"""By the field `m`; its value 3 is reserved and read as none."""

_NACK_CC_TYPE: Final = 2 << NETH.shift("cc_type")
"""What a NACK says where a SACK has the type of its CC_STATE (three sources)."""

EXTENSION_BYTES: Final[dict[int, int]] = {
    Opcode.ACK: _AETH.size,
    Opcode.SACK: _SETH.size,
    Opcode.NACK: _NETH.size,
    Opcode.RELIABILITY_PROBE: _PETH.size,
    Opcode.ENDPOINT_REQUEST: _ERTH.size,
    Opcode.ENDPOINT_RESPONSE: _EETH.size,
}
"""Bytes of the extension header of each control packet."""

Addresses = tuple[bytes, bytes, int, int]
"""Source, destination, EV and QPN: the first fields of most packets."""


def entropy_of(ev: int, *, label_first: bool) -> int:
    """The field `entropy` for an EV, and the EV for a field: see `WireOptions`."""
    return ev if label_first else (ev & 0xFFFF) << 16 | ev >> 16


def encode_extension(packet: Control, *, label_first: bool) -> tuple[int, int, int, int, bytes]:
    """Return opcode, QPN, PSN and whether BTH.rtx is set, and the extension header."""
    if isinstance(packet, Sack):
        extension = _SETH.pack(
            packet.mark << _MARK | _PROBE_REPLY * packet.probe_reply,
            packet.ack_psn_offset,
            packet.reflected_ev
            if label_first
            else entropy_of(packet.reflected_ev, label_first=False),
            packet.spdcid,
            packet.qpn & _16_BITS,
            packet.cack_psn,
            packet.cc_type << _CC_TYPE,
            packet.mpr,
            packet.sack_offset,
            packet.bitmap,
            packet.tx_timestamp,
            packet.ooo_count,
            packet.restore_cwnd << _RESTORE | packet.rcv_cwnd_pen << _PENALTY | packet.rcvd_bytes,
        )
        return Opcode.SACK, packet.qpn, packet.cack_psn, packet.retransmitted, extension
    if isinstance(packet, Ack):
        syndrome = AETH_NO_CREDITS if packet.error is None else packet.error
        return Opcode.ACK, packet.qpn, packet.psn, 0, _AETH.pack(syndrome << _SYNDROME | packet.msn)
    if isinstance(packet, Nack):
        extension = _NETH.pack(
            packet.reason,
            entropy_of(packet.reflected_ev, label_first=label_first),
            packet.spdcid,
            packet.qpn & _16_BITS,
            packet.nack_psn,
            _NACK_CC_TYPE,
            packet.tx_timestamp,
        )
        return Opcode.NACK, packet.qpn, packet.nack_psn, 0, extension
    if isinstance(packet, ReliabilityProbe):
        extension = _PETH.pack(
            packet.probe_id,
            packet.spdcid,
            packet.qpn & _16_BITS,
            packet.tx_timestamp,
            packet.tsr << _TSR | packet.ftype,
        )
        return Opcode.RELIABILITY_PROBE, packet.qpn, 0, 0, extension
    if isinstance(packet, EndpointRequest):
        extension = _ERTH.pack(
            packet.op, packet.port_mask, packet.tx_timestamp, packet.tsr << _TSR | packet.ftype
        )
        return Opcode.ENDPOINT_REQUEST, ENDPOINT_QPN, packet.request_id, 0, extension
    extension = _EETH.pack(packet.op << _RESPONSE_OP, packet.tx_timestamp)
    return Opcode.ENDPOINT_RESPONSE, ENDPOINT_QPN, packet.request_id, 0, extension


def decode_control(
    opcode: int,
    packet: Buffer,
    addresses: Addresses,
    psn: int,
    *,
    retransmitted: bool,
    label_first: bool,
) -> Control:
    """Return the control packet with this opcode, an `EXTENSION_BYTES`, and these BTH fields.

    Raises:
        DecodeError: a field holds a value that is not defined.
    """
    try:
        if opcode == Opcode.SACK:
            return _decode_sack(packet, addresses, retransmitted, label_first)
        if opcode == Opcode.NACK:
            reason, entropy, spdcid, _, nack_psn, _, tx_timestamp = _NETH.unpack_from(
                packet, _BEHIND
            )
            return Nack(
                *addresses,
                spdcid,
                NackReason(reason),
                entropy_of(entropy, label_first=label_first),
                nack_psn & _24_BITS,
                tx_timestamp,
            )
        if opcode == Opcode.ACK:
            (word,) = _AETH.unpack_from(packet, _BEHIND)
            syndrome = word >> _SYNDROME
            error = NakCode(syndrome) if syndrome & AETH_ACK_MASK else None
            return Ack(*addresses, psn, word & _24_BITS, error)
        if opcode == Opcode.RELIABILITY_PROBE:
            probe_id, spdcid, _, tx_timestamp, kind = _PETH.unpack_from(packet, _BEHIND)
            return ReliabilityProbe(
                *addresses, spdcid, probe_id, tx_timestamp, kind >> _TSR != 0, kind & _FTYPE
            )
        return _decode_endpoint(opcode, packet, addresses, psn & 0xFFFF)
    except ValueError as undefined:  # not `error`: as C a name has one type in a function
        raise DecodeError(DecodeReason.BAD_FIELD) from undefined


def _decode_sack(
    packet: Buffer, addresses: Addresses, retransmitted: bool, label_first: bool
) -> Sack:
    source, destination, ev, qpn = addresses  # named: a call with * is slower as C
    (
        marks,
        ack_psn_offset,
        entropy,
        spdcid,
        _,
        cack_psn,
        cc,
        mpr,
        sack_offset,
        bitmap,
        tx_timestamp,
        ooo_count,
        accounting,
    ) = _SETH.unpack_from(packet, _BEHIND)
    cc_type = cc >> _CC_TYPE
    if cc_type:  # another layout: not read
        tx_timestamp = ooo_count = accounting = 0
    return Sack(
        source,
        destination,
        ev,
        qpn,
        retransmitted,
        spdcid,
        cc_type,
        _MARKS[marks >> _MARK & 3],
        marks & _PROBE_REPLY != 0,
        ack_psn_offset,
        entropy if label_first else entropy_of(entropy, label_first=False),
        cack_psn & _24_BITS,
        mpr,
        sack_offset,
        bitmap,
        tx_timestamp,
        ooo_count & _OOO_COUNT,
        accounting >> _RESTORE != 0,
        accounting >> _PENALTY & _MOST_PENALTY,
        accounting & _RCVD_BYTES,
    )


def _decode_endpoint(
    opcode: int, packet: Buffer, addresses: Addresses, request_id: int
) -> EndpointRequest | EndpointResponse:
    source, destination, ev, qpn = addresses
    if qpn != ENDPOINT_QPN:
        raise DecodeError(DecodeReason.BAD_FIELD)
    if opcode == Opcode.ENDPOINT_REQUEST:
        op, mask, tx_timestamp, kind = _ERTH.unpack_from(packet, _BEHIND)
        return EndpointRequest(
            source,
            destination,
            ev,
            EndpointOp(op & _REQUEST_OP),
            request_id,
            mask,
            tx_timestamp,
            kind >> _TSR != 0,
            kind & _FTYPE,
        )
    op, tx_timestamp = _EETH.unpack_from(packet, _BEHIND)
    return EndpointResponse(
        source, destination, ev, op >> _RESPONSE_OP & _REQUEST_OP, request_id, tx_timestamp
    )
