"""The control packets on the wire: what follows the BTH in every packet that is not a WRITE.

- *SACK bitmap*: bit i, counted from the least significant, stands for PSN cack + sack_offset + i.
- *PETH*: probe id, tx_timestamp, 12 reserved bytes.
- *ERTH*: op in byte 0, EV in 4-7, the asking QP in 8-11, port mask in 12-15. *EETH* begins the
  same way, followed by 20 reserved bytes. The position of its op is another open conflict.
- *AETH*: as IBTA has it, syndrome in byte 0, MSN in 1-3; the PSN acknowledged, and all before it,
  is the BTH's. Only ACKs: a NAK of the AETH's kind is a NACK here, which is its own opcode.
- spdcid, dpdcid and cc_type are sent as zero and ignored.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from testbed.mrc.constants import (
    AETH_ACK_MASK,
    AETH_BYTES,
    AETH_NO_CREDITS,
    BASE_BYTES,
    CC_STATE_BYTES,
    EETH_BYTES,
    ENDPOINT_QPN,
    ERTH_BYTES,
    NETH_BYTES,
    PETH_BYTES,
    SETH_BYTES,
    EndpointOp,
    EvMark,
    NackReason,
    Opcode,
)
from testbed.mrc.wire.packets import (
    Ack,
    Buffer,
    Control,
    DecodeError,
    DecodeReason,
    EndpointRequest,
    EndpointResponse,
    Nack,
    ReliabilityProbe,
    Sack,
)

_AETH: Final = Struct("!I")
_SETH: Final = Struct("!BBhIIIBBhQHHI")
"""SETH and CC_STATE."""
_NETH: Final = Struct("!HBBIIIBBH")
_PETH: Final = Struct("!HH12x")
_ERTH: Final = Struct("!B3xIII")
_EETH: Final = Struct("!B3xIII20x")

EXTENSION_BYTES: Final[dict[int, int]] = {
    Opcode.ACK: AETH_BYTES,
    Opcode.SACK: SETH_BYTES + CC_STATE_BYTES,
    Opcode.NACK: NETH_BYTES,
    Opcode.RELIABILITY_PROBE: PETH_BYTES,
    Opcode.ENDPOINT_REQUEST: ERTH_BYTES,
    Opcode.ENDPOINT_RESPONSE: EETH_BYTES,
}
"""Bytes of the extension header of each control packet."""


def encode_extension(packet: Control) -> tuple[int, int, int, bytes]:
    """Return opcode, QPN and PSN for the BTH, and the extension header."""
    qpn, psn = ENDPOINT_QPN, 0
    if isinstance(packet, Sack):
        opcode, qpn = Opcode.SACK, packet.qpn
        extension = _SETH.pack(
            0,
            packet.mark << 5 | packet.probe_reply << 1,
            packet.ack_psn_offset,
            packet.reflected_ev,
            0,
            packet.cack_psn,
            0,
            packet.mpr,
            packet.sack_offset,
            packet.bitmap,
            packet.tx_timestamp,
            packet.ooo_count,
            packet.restore_cwnd << 31 | packet.rcv_cwnd_pen << 24 | packet.rcvd_bytes,
        )
    elif isinstance(packet, Ack):
        opcode, qpn, psn = Opcode.ACK, packet.qpn, packet.psn
        extension = _AETH.pack(AETH_NO_CREDITS << 24 | packet.msn)
    elif isinstance(packet, Nack):
        opcode, qpn = Opcode.NACK, packet.qpn
        extension = _NETH.pack(
            0,
            packet.reason,
            0,
            packet.reflected_ev,
            0,
            packet.nack_psn,
            0,
            0,
            packet.tx_timestamp,
        )
    elif isinstance(packet, ReliabilityProbe):
        opcode, qpn, psn = Opcode.RELIABILITY_PROBE, packet.qpn, packet.psn
        extension = _PETH.pack(packet.probe_id, packet.tx_timestamp)
    elif isinstance(packet, EndpointRequest):
        opcode, psn = Opcode.ENDPOINT_REQUEST, packet.request_id
        extension = _ERTH.pack(packet.op, packet.ev, packet.requester_qpn, packet.port_mask)
    else:
        opcode, psn = Opcode.ENDPOINT_RESPONSE, packet.request_id
        extension = _EETH.pack(packet.op, packet.reflected_ev, packet.qpn, packet.port_mask)
    return opcode, qpn, psn, extension


def _decode_ack(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, psn: int
) -> Ack:
    (word,) = _AETH.unpack_from(packet, BASE_BYTES)
    if word >> 24 & AETH_ACK_MASK:
        raise DecodeError(DecodeReason.BAD_FIELD)
    return Ack(source, destination, ev, qpn, psn, word & 0xFFFFFF)


def _decode_sack(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, _psn: int
) -> Sack:
    (
        _,
        marks,
        ack_psn_offset,
        reflected_ev,
        _,
        cack_psn,
        _,
        mpr,
        sack_offset,
        bitmap,
        tx_timestamp,
        ooo_count,
        accounting,
    ) = _SETH.unpack_from(packet, BASE_BYTES)
    return Sack(
        source,
        destination,
        ev,
        qpn,
        EvMark(marks >> 5 & 3),
        marks & 2 != 0,
        ack_psn_offset,
        reflected_ev,
        cack_psn & 0xFFFFFF,
        mpr,
        sack_offset,
        bitmap,
        tx_timestamp,
        ooo_count & 0x7FFF,
        accounting >> 31 != 0,
        accounting >> 24 & 0x7F,
        accounting & 0xFFFFFF,
    )


def _decode_nack(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, _psn: int
) -> Nack:
    _, reason, _, reflected_ev, _, nack_psn, _, _, tx_timestamp = _NETH.unpack_from(
        packet, BASE_BYTES
    )
    return Nack(
        source,
        destination,
        ev,
        qpn,
        NackReason(reason),
        reflected_ev,
        nack_psn & 0xFFFFFF,
        tx_timestamp,
    )


def _decode_probe(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, psn: int
) -> ReliabilityProbe:
    probe_id, tx_timestamp = _PETH.unpack_from(packet, BASE_BYTES)
    return ReliabilityProbe(source, destination, ev, qpn, psn, probe_id, tx_timestamp)


def _decode_request(
    packet: Buffer, source: bytes, destination: bytes, _ev: int, qpn: int, psn: int
) -> EndpointRequest:
    # The EV of the extension header: unlike the flow label, the iCRC vouches for it.
    op, ev, requester_qpn, port_mask = _ERTH.unpack_from(packet, BASE_BYTES)
    if qpn != ENDPOINT_QPN:
        raise DecodeError(DecodeReason.BAD_FIELD)
    return EndpointRequest(
        source, destination, ev, EndpointOp(op), psn & 0xFFFF, requester_qpn, port_mask
    )


def _decode_response(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, psn: int
) -> EndpointResponse:
    op, reflected_ev, requester_qpn, port_mask = _EETH.unpack_from(packet, BASE_BYTES)
    if qpn != ENDPOINT_QPN:
        raise DecodeError(DecodeReason.BAD_FIELD)
    return EndpointResponse(
        source,
        destination,
        ev,
        EndpointOp(op),
        psn & 0xFFFF,
        requester_qpn,
        port_mask,
        reflected_ev,
    )


_DECODERS: Final[dict[int, Callable[[Buffer, bytes, bytes, int, int, int], Control]]] = {
    Opcode.ACK: _decode_ack,
    Opcode.SACK: _decode_sack,
    Opcode.NACK: _decode_nack,
    Opcode.RELIABILITY_PROBE: _decode_probe,
    Opcode.ENDPOINT_REQUEST: _decode_request,
    Opcode.ENDPOINT_RESPONSE: _decode_response,
}


def decode_control(
    opcode: int, packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, psn: int
) -> Control:
    """Return the control packet with this opcode, an `EXTENSION_BYTES`, and these BTH fields.

    Raises:
        DecodeError: a field holds what is not defined.
    """
    try:
        return _DECODERS[opcode](packet, source, destination, ev, qpn, psn)
    except ValueError as error:
        raise DecodeError(DecodeReason.BAD_FIELD) from error
