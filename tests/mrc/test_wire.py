"""The codec: layouts to the byte, round trips, and nothing but DecodeError for anything else."""

import struct
from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.mrc import DecodeError, DecodeReason, EndpointRequest, decode
from testbed.mrc.constants import EndpointOp, EvMark, NackReason, NakCode
from testbed.mrc.wire.codec import (
    WRITE_HEADER_BYTES,
    encode,
    encode_write,
    icrc,
)
from testbed.mrc.wire.control import (
    EXTENSION_BYTES,
    Ack,
    Control,
    EndpointResponse,
    Nack,
    ReliabilityProbe,
    Sack,
)
from testbed.mrc.wire.kinds import TRIMMED_BYTES, Opcode, TrimmedWrite, WireOptions, Write

u7 = st.integers(0, (1 << 7) - 1)
u8 = st.integers(0, (1 << 8) - 1)
u15 = st.integers(0, (1 << 15) - 1)
u16 = st.integers(0, (1 << 16) - 1)
s16 = st.integers(-(1 << 15), (1 << 15) - 1)
u24 = st.integers(0, (1 << 24) - 1)
u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
address = st.binary(min_size=16, max_size=16)
dscp = st.integers(0, 63)

writes = st.builds(
    Write,
    source=address,
    destination=address,
    ev=u32,
    qpn=u24,
    psn=u24,
    opcode=st.sampled_from(
        [Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_ONLY]
    ),
    ack_request=st.booleans(),
    retransmitted=st.booleans(),
    rqmsn=u16,
    msn=u16,
    tx_timestamp=st.none() | u16,
    va=u64,
    rkey=u32,
    dma_length=u32,
    payload=st.binary(max_size=300),
    immediate=st.none(),
    tsr=st.just(False),
    ftype=st.just(1),
)
immediate_writes = st.builds(
    Write._replace,
    writes,
    opcode=st.sampled_from([Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY_IMMEDIATE]),
    immediate=u32,
)
writes = writes | immediate_writes
controls: st.SearchStrategy[Control] = st.one_of(
    st.builds(
        Ack,
        source=address,
        destination=address,
        ev=u32,
        qpn=u24,
        psn=u24,
        msn=u24,
        error=st.none() | st.sampled_from(NakCode),
    ),
    st.builds(
        Sack,
        source=address,
        destination=address,
        ev=u32,
        qpn=u24,
        retransmitted=st.booleans(),
        spdcid=u16,
        cc_type=st.just(0),
        mark=st.sampled_from(EvMark),
        probe_reply=st.booleans(),
        ack_psn_offset=s16,
        reflected_ev=u32,
        cack_psn=u24,
        mpr=u8,
        sack_offset=s16,
        bitmap=u64,
        tx_timestamp=u16,
        ooo_count=u15,
        restore_cwnd=st.booleans(),
        rcv_cwnd_pen=u7,
        rcvd_bytes=u24,
    ),
    st.builds(
        Nack,
        source=address,
        destination=address,
        ev=u32,
        qpn=u24,
        spdcid=u16,
        reason=st.sampled_from(NackReason),
        reflected_ev=u32,
        nack_psn=u24,
        tx_timestamp=u16,
    ),
    st.builds(
        ReliabilityProbe,
        source=address,
        destination=address,
        ev=u32,
        qpn=u24,
        spdcid=u16,
        probe_id=u16,
        tx_timestamp=u16,
        tsr=st.booleans(),
        ftype=st.integers(0, 15),
    ),
    st.builds(
        EndpointRequest,
        source=address,
        destination=address,
        ev=u32,
        op=st.sampled_from(EndpointOp),
        request_id=u16,
        port_mask=u32,
        tx_timestamp=u16,
        tsr=st.booleans(),
        ftype=st.integers(0, 15),
    ),
    st.builds(
        EndpointResponse,
        source=address,
        destination=address,
        ev=u32,
        op=st.integers(0, 3),
        request_id=u16,
        tx_timestamp=u16,
    ),
)


def write_bytes(write: Write, dscp: int = 10, udp_port: int = 4791) -> bytes:
    header, trailer = encode_write(
        write.source,
        write.destination,
        write.ev,
        write.qpn,
        write.psn,
        write.opcode,
        write.ack_request,
        write.retransmitted,
        write.rqmsn,
        write.msn,
        write.tx_timestamp,
        write.va,
        write.rkey,
        write.dma_length,
        write.payload,
        dscp,
        write.immediate,
        write.tsr,
        udp_port,
    )
    return header + bytes(write.payload) + trailer


def a_write(payload: bytes = bytes(range(256))) -> Write:
    return Write(
        source=b"s" * 16,
        destination=b"d" * 16,
        ev=0xABCD1234,
        qpn=0x123456,
        psn=0xFEDCBA,
        opcode=Opcode.WRITE_ONLY,
        ack_request=True,
        retransmitted=False,
        rqmsn=1,
        msn=2,
        tx_timestamp=3,
        va=0x1122334455667788,
        rkey=0x99AABBCC,
        dma_length=256,
        payload=payload,
    )


@given(write=writes, dscp=dscp)
def test_writes_round_trip(write: Write, dscp: int) -> None:
    assert decode(memoryview(write_bytes(write, dscp))) == write


@given(packet=controls, dscp=dscp, label_first=st.booleans(), port=st.sampled_from([4791, 4971]))
def test_control_packets_round_trip(
    packet: Control, dscp: int, label_first: bool, port: int
) -> None:
    data = b"".join(encode(packet, dscp, WireOptions(port, label_first=label_first)))
    assert decode(data, label_first=label_first) == packet
    assert int.from_bytes(data[42:44], "big") == port


def test_both_udp_ports_are_accepted_and_one_may_be_chosen() -> None:
    write = a_write()
    assert decode(write_bytes(write, udp_port=4791)) == decode(write_bytes(write, udp_port=4971))
    with pytest.raises(ValueError, match="4971"):
        WireOptions(4792)


@given(write=writes)
def test_trimmed_writes_keep_their_identity(write: Write) -> None:
    kept = TRIMMED_BYTES if write.tx_timestamp is not None else TRIMMED_BYTES - 4
    trimmed = decode(write_bytes(write)[:kept], trimmed=True)
    assert trimmed == TrimmedWrite(
        write.source,
        write.destination,
        write.ev,
        write.qpn,
        write.psn,
        write.msn,
        write.tx_timestamp,
    )


@given(data=st.binary(max_size=200), trimmed=st.booleans())
@example(data=b"", trimmed=False)
def test_any_bytes_decode_or_raise_decode_error(data: bytes, trimmed: bool) -> None:
    with suppress(DecodeError):
        decode(data, trimmed=trimmed)


@given(
    packet=st.one_of(writes.map(write_bytes), controls.map(lambda p: b"".join(encode(p, 46)))),
    trimmed=st.booleans(),
    data=st.data(),
)
def test_damaged_packets_decode_or_raise_decode_error(
    packet: bytes, trimmed: bool, data: st.DataObject
) -> None:
    damaged = bytearray(packet)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(packet) - 1))] = data.draw(u8)
    cut = data.draw(st.integers(0, len(packet)))
    with suppress(DecodeError):
        decode(damaged[:cut], trimmed=trimmed)


def _may_change_on_the_way(bit: int) -> bool:
    byte, bit = divmod(bit, 8)
    label_or_class = byte in (1, 2, 3) or (byte == 0 and bit < 4)
    return label_or_class or byte == 7 or byte in (46, 47) or byte == 52


def test_one_flipped_bit_is_seen_unless_it_may_change_on_the_way() -> None:
    packet = write_bytes(a_write())
    for bit in range(len(packet) * 8):
        flipped = bytearray(packet)
        flipped[bit // 8] ^= 1 << bit % 8
        if _may_change_on_the_way(bit):
            assert isinstance(decode(flipped), Write)
        else:
            with pytest.raises(DecodeError):
                decode(flipped)


def test_the_icrc_is_that_of_rocev2() -> None:
    packet = bytearray(write_bytes(a_write()))
    covered = bytearray(packet[:-4])
    covered[0:4] = b"\x6f\xff\xff\xff"
    covered[7] = 0xFF
    covered[46:48] = b"\xff\xff"
    covered[52] = 0xFF
    assert packet[-4:] == crc32(b"\xff" * 8 + covered).to_bytes(4, "little")


def test_layout_of_a_write() -> None:
    packet = write_bytes(a_write(), dscp=10)
    assert packet[:8] == struct.pack("!IHBB", 6 << 28 | 10 << 22 | 2 << 20 | 0xABCD, 304, 17, 64)
    assert packet[8:40] == b"s" * 16 + b"d" * 16
    assert packet[40:48] == struct.pack("!HHHH", 0x1234, 4791, 304, 0)
    assert packet[48:60] == bytes.fromhex("ca00ffff 00123456 90fedcba")
    assert packet[60:68] == bytes.fromhex("00010002 00030001")
    assert packet[68:84] == bytes.fromhex("1122334455667788 99aabbcc 00000100")
    assert packet[84:-4] == bytes(range(256))
    assert (WRITE_HEADER_BYTES, TRIMMED_BYTES) == (84, 68)


def test_layout_of_a_write_with_immediate() -> None:
    write = a_write()._replace(opcode=Opcode.WRITE_ONLY_IMMEDIATE, immediate=0x01020304)
    packet = write_bytes(write)
    assert packet[4:6] == packet[44:46] == struct.pack("!H", 308)
    assert packet[48] == 0xCB
    assert packet[80:88] == bytes.fromhex("00000100 01020304")
    assert packet[88:-4] == bytes(range(256))


def test_layout_of_a_sack() -> None:
    sack = Sack(
        source=b"s" * 16,
        destination=b"d" * 16,
        ev=1,
        qpn=5,
        retransmitted=True,
        spdcid=0x77,
        cc_type=0,
        mark=EvMark.SKIP_ONCE,
        probe_reply=True,
        ack_psn_offset=-2,
        reflected_ev=0x01020304,
        cack_psn=0xABCDEF,
        mpr=8,
        sack_offset=-1,
        bitmap=0x8000000000000001,
        tx_timestamp=0x1111,
        ooo_count=0x0222,
        restore_cwnd=True,
        rcv_cwnd_pen=1,
        rcvd_bytes=0x333333,
    )
    header = encode(sack, 46)[0]
    assert header[56:60] == bytes.fromhex("20abcdef")
    extension = header[60:]
    assert extension == bytes.fromhex(
        "0022 fffe 01020304 00770005 00abcdef 00 08 ffff 80000000000000011111 0222 81 333333"
    )


def test_layout_of_a_nack() -> None:
    nack = Nack(b"s" * 16, b"d" * 16, 1, 5, 0x77, NackReason.TRIMMED, 0x01020304, 0xABCDEF, 0x1111)
    assert encode(nack, 46)[0][60:] == bytes.fromhex(
        "0000 01 00 01020304 00770005 00abcdef 2000 1111"
    )


def test_payloads_are_padded_to_four_bytes() -> None:
    packet = write_bytes(a_write(b"12345"))
    assert len(packet) == 84 + 8 + 4
    assert packet[49] >> 4 == 3
    decoded = decode(packet)
    assert isinstance(decoded, Write)
    assert decoded.payload == b"12345"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: p[:59], DecodeReason.TRUNCATED),
        (lambda p: b"\x40" + p[1:], DecodeReason.NOT_IPV6),
        (lambda p: p[:6] + b"\x06" + p[7:], DecodeReason.NOT_UDP),
        (lambda p: p[:42] + b"\x13\x6c" + p[44:], DecodeReason.WRONG_PORT),
        (lambda p: p + b"x", DecodeReason.BAD_LENGTH),
        (lambda p: p[:48] + b"\x04" + p[49:], DecodeReason.UNKNOWN_OPCODE),
        (lambda p: p[:100] + b"\xff" + p[101:], DecodeReason.BAD_ICRC),
    ],
)
def test_reasons(change: object, reason: DecodeReason) -> None:
    assert callable(change)
    with pytest.raises(DecodeError) as caught:
        decode(change(write_bytes(a_write())))
    assert caught.value.reason is reason


def test_an_undefined_value_under_a_good_icrc_is_a_bad_field() -> None:
    nack = Nack(b"s" * 16, b"d" * 16, 1, 5, 0x77, NackReason.TRIMMED, 1, 2, 3)
    header, _ = encode(nack, 46)
    reason = len(header) - EXTENSION_BYTES[Opcode.NACK] + 2
    header = header[:reason] + b"\x55" + header[reason + 1 :]
    with pytest.raises(DecodeError) as caught:
        decode(header + icrc(header, b"").to_bytes(4, "little"))
    assert caught.value.reason is DecodeReason.BAD_FIELD
