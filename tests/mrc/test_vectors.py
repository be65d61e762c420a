"""Eleven packets byte for byte: encoded, decoded, and with any one bit changed or end cut off.

What a changed packet says is read twice: by the codec, and field by field from the declarations.
"""

from typing import Any

import pytest

from testbed.mrc import DecodeError, DecodeReason, decode
from testbed.mrc.constants import EndpointOp, EvMark, NackReason, NakCode
from testbed.mrc.wire.codec import encode, icrc
from testbed.mrc.wire.control import (
    Ack,
    Control,
    EndpointRequest,
    EndpointResponse,
    Nack,
    Packet,
    ReliabilityProbe,
    Sack,
)
from testbed.mrc.wire.kinds import (
    IMMEDIATE_OPCODES,
    KIND_OF,
    WRITE,
    Opcode,
    TrimmedWrite,
    WireOptions,
    Write,
)
from tests.packet_reader import headers_behind, read

from .test_wire import write_bytes
from .vectors import V1S_OUTER, VECTORS, A, B

DATA, AGAIN, CONTROL = 10, 18, 46
TO_B, TO_A = (A, B), (B, A)
EV, PROBED = 0x0019C0DE, 0x0021BEEF

V1 = Write(
    *TO_B, EV, 0x12, 0x100, Opcode.WRITE_ONLY, True, False, 0, 0, 0x1A2B, 0x7000 << 32, 0x1234, 13,
    bytes(range(0xA0, 0xAD)),
)  # fmt: skip
V2 = Write(
    *TO_B, EV, 0x12, 0x101, Opcode.WRITE_ONLY_IMMEDIATE, True, True, 0, 1, None,
    (0x7000 << 32) + 0x1000, 0x1234, 8, bytes(range(0xB0, 0xB8)), 0xC0FFEE01,
)  # fmt: skip
V4 = Sack(
    *TO_A, EV, 0x11, False, 0x12, 0, EvMark.SKIP_ONCE, False, 3, EV, 0x100, 0, 1, 0b110, 0x1A2B, 2,
    False, 0, 0x22,
)  # fmt: skip
V7 = Sack(
    *TO_A, PROBED, 0x11, False, 0x12, 0, EvMark.NONE, True, 0x42, PROBED, 0x100, 0, 1, 0b110,
    0x1A40, 2, False, 0, 0x22,
)  # fmt: skip
CONTROLS: dict[str, tuple[Control, int]] = {
    "V3": (Ack(*TO_A, EV, 0x11, 0x100, 1), CONTROL),
    "V4": (V4, CONTROL),
    "V5": (Nack(*TO_A, EV, 0x11, 0x12, NackReason.TRIMMED, PROBED, 0x101, 0x1A2C), CONTROL),
    "V6": (ReliabilityProbe(*TO_B, PROBED, 0x12, 0x11, 0x42, 0x1A40), DATA),
    "V7": (V7, CONTROL),
    "V8": (EndpointRequest(*TO_B, PROBED, EndpointOp.EV_PROBE, 7, 0, 0x1A50), CONTROL),
    "V9": (EndpointResponse(*TO_A, PROBED, EndpointOp.EV_PROBE, 7, 0x1A50), CONTROL),
    "V10": (EndpointRequest(*TO_B, EV, EndpointOp.PORT_STATUS_UPDATE, 8, 0b1011, 0x1A60), DATA),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control_vectors(name: str) -> None:
    packet, dscp = CONTROLS[name]
    assert b"".join(encode(packet, dscp)) == VECTORS[name]
    assert decode(VECTORS[name]) == packet


@pytest.mark.parametrize(("name", "packet", "dscp"), [("V1", V1, DATA), ("V2", V2, AGAIN)])
def test_write_vectors(name: str, packet: Write, dscp: int) -> None:
    assert write_bytes(packet, dscp) == VECTORS[name]
    assert decode(VECTORS[name]) == packet


def test_the_vector_with_its_outer_header() -> None:
    from testbed.emulation.endpoint.nic import _OUTER  # noqa: PLC0415 - the endpoint's, not the core's

    words = _OUTER.unpack(V1S_OUTER)
    assert words[:4] == (0x62A00019, len(VECTORS["V1"]), 41, 64)
    assert words[4:] == (A, bytes.fromhex("5f000000 12002203 12013202 00000000"))


def test_on_the_other_port_only_port_and_icrc_change() -> None:
    packet, dscp = CONTROLS["V4"]
    other = b"".join(encode(packet, dscp, WireOptions(4971)))
    changed = [at for at, (a, b) in enumerate(zip(other, VECTORS["V4"], strict=True)) if a != b]
    assert set(changed) <= {42, 43, *range(len(other) - 4, len(other))}
    assert decode(other) == packet


def sealed(packet: bytes) -> bytes:
    return packet[:-4] + icrc(packet[:-4], b"").to_bytes(4, "little")


def refusal(packet: bytes) -> DecodeReason | None:  # noqa: C901, PLR0911 - a rule after the other
    """Why the declarations refuse a packet with a good iCRC; None: they do not."""
    if len(packet) < 60:
        return DecodeReason.TRUNCATED
    version, length, next_header = packet[0] >> 4, int.from_bytes(packet[4:6], "big"), packet[6]
    port, udp_length = (int.from_bytes(packet[at : at + 2], "big") for at in (42, 44))
    opcode, pad, transport = packet[48], packet[49] >> 4 & 3, packet[49] & 15
    kind = KIND_OF.get(opcode)
    if version != 6:
        return DecodeReason.NOT_IPV6
    if next_header != 17:
        return DecodeReason.NOT_UDP
    if port not in (4791, 4971):
        return DecodeReason.WRONG_PORT
    if not length == udp_length == len(packet) - 40:
        return DecodeReason.BAD_LENGTH
    if kind is None:
        return DecodeReason.UNKNOWN_OPCODE
    headers = headers_behind(opcode, ts=bool(packet[56] & 0x10))
    behind = len(packet) - 60 - sum(header.size for header in headers) - 4
    if kind is WRITE:
        if behind < pad:
            return DecodeReason.TRUNCATED
    elif behind:
        return DecodeReason.BAD_LENGTH
    if transport:
        return DecodeReason.WRONG_VERSION
    fields = {key: value for _, values in read(packet) for key, value in values.items()}
    undefined = (
        (opcode == Opcode.NACK and fields["nack_reason"] not in set(NackReason))
        or (
            opcode == Opcode.ACK
            and fields["syndrome"] > 0x1F
            and fields["syndrome"] not in set(NakCode)
        )
        or (opcode == Opcode.ENDPOINT_REQUEST and fields["op"] > 1)
        or (opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE) and fields["dqp"] != 2)
    )
    return DecodeReason.BAD_FIELD if undefined else None


def said(packet: Packet) -> dict[str, Any]:  # noqa: C901 - a case for each kind of packet
    """What a decoded packet says, by the names of the declarations."""
    fields: dict[str, Any] = {
        "source": int.from_bytes(packet.source, "big"),
        "destination": int.from_bytes(packet.destination, "big"),
        "label": packet.ev >> 16,
        "source_port": packet.ev & 0xFFFF,
    }
    if not isinstance(packet, EndpointRequest | EndpointResponse):
        fields["dqp"] = packet.qpn
    match packet:
        case Write():
            fields |= {
                name: getattr(packet, name) for name in ("psn", "rqmsn", "msn", "va", "rkey")
            }
            fields |= {"dma_length": packet.dma_length, "rtx": packet.retransmitted}
            fields |= {"ack_request": packet.ack_request, "ts": packet.tx_timestamp is not None}
            if packet.opcode in IMMEDIATE_OPCODES:
                fields["immediate"] = packet.immediate
            if packet.tx_timestamp is not None:
                fields |= {"tx_timestamp": packet.tx_timestamp, "tsr": packet.tsr}
                fields["ftype"] = packet.ftype
        case Ack():
            fields |= {"psn": packet.psn, "msn": packet.msn}
            if packet.error is not None:
                fields["syndrome"] = packet.error
        case Sack():
            names: tuple[str, ...] = (
                "spdcid",
                "ack_psn_offset",
                "cc_type",
                "cack_psn",
                "mpr",
                "sack_offset",
                "bitmap",
            )
            fields |= {name: getattr(packet, name) for name in names}
            fields |= {"rtx": packet.retransmitted, "pr": packet.probe_reply}
            fields["entropy"] = packet.reflected_ev
            if packet.cc_type == 0:
                names = ("tx_timestamp", "ooo_count", "restore_cwnd", "rcv_cwnd_pen", "rcvd_bytes")
                fields |= {name: getattr(packet, name) for name in names}
        case Nack():
            fields |= {"nack_reason": packet.reason, "entropy": packet.reflected_ev}
            fields |= {"nack_psn": packet.nack_psn, "tx_timestamp": packet.tx_timestamp}
            fields["spdcid"] = packet.spdcid
        case ReliabilityProbe():
            names = ("probe_id", "tx_timestamp", "tsr", "ftype", "spdcid")
            fields |= {name: getattr(packet, name) for name in names}
        case EndpointRequest():
            fields |= {"op": packet.op, "port_status_mask": packet.port_mask, "tsr": packet.tsr}
            fields |= {"tx_timestamp": packet.tx_timestamp, "ftype": packet.ftype}
        case EndpointResponse():
            fields |= {"op": packet.op, "tx_timestamp": packet.tx_timestamp}
    return fields


def check(packet: bytes) -> None:
    """The codec reads a packet with a good iCRC as the declarations do, or refuses it so."""
    reason = refusal(packet)
    if reason is not None:
        with pytest.raises(DecodeError) as caught:
            decode(packet)
        assert caught.value.reason is reason
        return
    decoded = decode(packet)
    fields = {key: value for _, values in read(packet) for key, value in values.items()}
    for name, value in said(decoded).items():
        assert value == fields[name], name
    if isinstance(decoded, Sack):
        assert decoded.mark == (0, 1, 2, 0)[fields["m"]]
    if isinstance(decoded, EndpointRequest | EndpointResponse):
        assert decoded.request_id == fields["psn"] & 0xFFFF


@pytest.mark.parametrize("name", VECTORS)
def test_any_changed_bit_is_read_as_declared_or_refused(name: str) -> None:
    vector = VECTORS[name]
    for bit in range(8 * (len(vector) - 4)):
        changed = bytearray(vector)
        changed[bit // 8] ^= 0x80 >> bit % 8
        check(sealed(bytes(changed)))


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("lengths_agree", [False, True])
def test_any_truncation_is_read_as_declared_or_refused(name: str, lengths_agree: bool) -> None:
    vector = VECTORS[name]
    for size in range(len(vector)):
        cut = bytearray(vector[:size])
        if lengths_agree and size >= 48:
            cut[4:6] = cut[44:46] = (size - 40).to_bytes(2, "big")
        check(sealed(bytes(cut)) if size >= 64 else bytes(cut))


@pytest.mark.parametrize("name", ["V1", "V2"])
def test_a_trimmed_vector_is_read_from_what_is_left(name: str) -> None:
    vector = VECTORS[name]
    fields = {key: value for _, values in read(vector) for key, value in values.items()}
    kept = 68 if fields["ts"] else 64
    for size in range(len(vector)):
        if size < kept:
            with pytest.raises(DecodeError) as caught:
                decode(vector[:size], trimmed=True)
            assert caught.value.reason is DecodeReason.TRUNCATED
        else:
            trimmed = decode(vector[:size], trimmed=True)
            assert isinstance(trimmed, TrimmedWrite)
            assert (trimmed.psn, trimmed.msn) == (fields["psn"], fields["msn"])
            assert trimmed.tx_timestamp == fields.get("tx_timestamp")
