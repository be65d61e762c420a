"""The control packets on the wire: what follows the BTH in every packet that is not a WRITE.

- *SACK bitmap*: bit i, counted from the least significant, stands for PSN cack + sack_offset + i.
- *PETH*: probe id, tx_timestamp, 12 reserved bytes.
- *ERTH*: op in byte 0, EV in 4-7, the requesting QP in 8-11, port mask in 12-15. *EETH* begins the
  same way, followed by 20 reserved bytes. Sources disagree on the position of its op.
- *AETH*: as in IBTA: syndrome in byte 0, MSN in 1-3; the BTH's PSN and all before it are
  acknowledged. Only ACKs: MRC has an opcode of its own, NACK, for what is a NAK there.
- spdcid, dpdcid and cc_type are sent as zero and ignored.
"""

from struct import Struct
from typing import Final

from testbed.mrc.constants import (
    AETH_ACK_MASK,
    AETH_NO_CREDITS,
    BASE_BYTES,
    ENDPOINT_QPN,
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
_SETH: Final = Struct("!xBhI4xIxBhQHHI")
"""SETH (28 bytes) and CC_STATE (8 bytes)."""
_NETH: Final = Struct("!2xBxI4xI2xH")
_PETH: Final = Struct("!HH12x")
_ERTH: Final = Struct("!B3xIII")
_EETH: Final = Struct("!B3xIII20x")

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


def encode_extension(packet: Control) -> tuple[int, int, int, bytes]:
    """Return opcode, QPN and PSN for the BTH, and the extension header."""
    if isinstance(packet, Sack):
        marks = packet.mark << 5 | packet.probe_reply << 1
        penalty = packet.restore_cwnd << 7 | packet.rcv_cwnd_pen
        extension = _SETH.pack(
            marks,
            packet.ack_psn_offset,
            packet.reflected_ev,
            packet.cack_psn,
            packet.mpr,
            packet.sack_offset,
            packet.bitmap,
            packet.tx_timestamp,
            packet.ooo_count,
            penalty << 24 | packet.rcvd_bytes,
        )
        return Opcode.SACK, packet.qpn, 0, extension
    if isinstance(packet, Ack):
        return Opcode.ACK, packet.qpn, packet.psn, _AETH.pack(AETH_NO_CREDITS << 24 | packet.msn)
    if isinstance(packet, Nack):
        extension = _NETH.pack(
            packet.reason, packet.reflected_ev, packet.nack_psn, packet.tx_timestamp
        )
        return Opcode.NACK, packet.qpn, 0, extension
    if isinstance(packet, ReliabilityProbe):
        extension = _PETH.pack(packet.probe_id, packet.tx_timestamp)
        return Opcode.RELIABILITY_PROBE, packet.qpn, packet.psn, extension
    if isinstance(packet, EndpointRequest):
        extension = _ERTH.pack(packet.op, packet.ev, packet.requester_qpn, packet.port_mask)
        return Opcode.ENDPOINT_REQUEST, ENDPOINT_QPN, packet.request_id, extension
    extension = _EETH.pack(packet.op, packet.reflected_ev, packet.qpn, packet.port_mask)
    return Opcode.ENDPOINT_RESPONSE, ENDPOINT_QPN, packet.request_id, extension


def decode_control(opcode: int, packet: Buffer, addresses: Addresses, psn: int) -> Control:
    """Return the control packet with this opcode, an `EXTENSION_BYTES`, and these BTH fields.

    Raises:
        DecodeError: a field holds a value that is not defined.
    """
    try:
        if opcode == Opcode.SACK:
            return _decode_sack(packet, addresses)
        if opcode == Opcode.NACK:
            reason, reflected_ev, nack_psn, tx_timestamp = _NETH.unpack_from(packet, BASE_BYTES)
            fields = NackReason(reason), reflected_ev, nack_psn & 0xFFFFFF, tx_timestamp
            return Nack(*addresses, *fields)
        if opcode == Opcode.ACK:
            (word,) = _AETH.unpack_from(packet, BASE_BYTES)
            if word >> 24 & AETH_ACK_MASK:
                raise DecodeError(DecodeReason.BAD_FIELD)
            return Ack(*addresses, psn, word & 0xFFFFFF)
        if opcode == Opcode.RELIABILITY_PROBE:
            return ReliabilityProbe(*addresses, psn, *_PETH.unpack_from(packet, BASE_BYTES))
        return _decode_endpoint(opcode, packet, addresses, psn & 0xFFFF)
    except ValueError as error:
        raise DecodeError(DecodeReason.BAD_FIELD) from error


def _decode_sack(packet: Buffer, addresses: Addresses) -> Sack:
    source, destination, ev, qpn = addresses  # named: a call with * is slower as C
    (
        marks,
        ack_psn_offset,
        reflected_ev,
        cack_psn,
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


def _decode_endpoint(
    opcode: int, packet: Buffer, addresses: Addresses, request_id: int
) -> EndpointRequest | EndpointResponse:
    source, destination, ev, qpn = addresses
    if qpn != ENDPOINT_QPN:
        raise DecodeError(DecodeReason.BAD_FIELD)
    # The EV of the extension header: unlike the flow label, the iCRC covers it.
    op, covered_ev, requester_qpn, port_mask = _ERTH.unpack_from(packet, BASE_BYTES)
    fields = EndpointOp(op), request_id, requester_qpn, port_mask
    if opcode == Opcode.ENDPOINT_REQUEST:
        return EndpointRequest(source, destination, covered_ev, *fields)
    return EndpointResponse(source, destination, ev, *fields, covered_ev)
