"""The bytes of RoCEv2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.host.roce.wire import (
    FIRSTS,
    IMMEDIATES,
    Ack,
    Cnp,
    Nak,
    Opcode,
    Packet,
    Reth,
    Write,
    decode,
)
from testbed.host.roce.wire import encode as encode_packet
from testbed.mrc import DecodeError

from .network import ADDRESSES

WRITES = [op for op in Opcode if op not in (Opcode.ACKNOWLEDGE, Opcode.CNP)]
u24, u32 = st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 32) - 1)


def encode(packet: Packet, dscp: int = 0) -> bytes:
    header, trailer = encode_packet(packet, dscp)
    return header + (bytes(packet.payload) if isinstance(packet, Write) else b"") + trailer


@st.composite
def writes(draw: st.DrawFn) -> Write:
    opcode = draw(st.sampled_from(WRITES))
    reth = st.builds(Reth, st.integers(0, (1 << 64) - 1), u32, u32)
    return Write(
        *ADDRESSES,
        draw(u32),
        draw(u24),
        draw(u24),
        opcode,
        draw(st.booleans()),
        draw(st.binary(max_size=64)),
        draw(reth) if opcode in FIRSTS else None,
        draw(u32) if opcode in IMMEDIATES else None,
    )


acks = st.builds(
    Ack, *map(st.just, ADDRESSES), u32, u24, u24, u24, st.none() | st.sampled_from(Nak)
)
cnps = st.builds(Cnp, *map(st.just, ADDRESSES), u32, u24)
packets = writes() | acks | cnps


@given(packets, st.integers(0, 63))
def test_what_is_encoded_is_decoded(packet: Packet, dscp: int) -> None:
    assert decode(encode(packet, dscp)) == packet


@given(packets, st.data())
def test_a_flipped_bit_is_noticed_unless_it_is_of_a_field_that_changes_on_the_way(
    packet: Packet, data: st.DataObject
) -> None:
    whole = bytearray(encode(packet))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit >> 3] ^= 0x80 >> (bit & 7)
    masked = 4 <= bit < 32 or bit >> 3 in (7, 46, 47, 52)  # class and label, hops, checksum, BECN
    if masked:
        assert type(decode(bytes(whole))) is type(packet)
    else:
        with pytest.raises(DecodeError):
            decode(bytes(whole))


@given(st.binary(max_size=200))
def test_what_is_not_a_packet_is_refused(junk: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(junk)


@given(writes(), st.integers(1, 100))
def test_what_is_cut_short_is_refused(packet: Write, cut: int) -> None:
    with pytest.raises(DecodeError):
        decode(encode(packet)[:-cut])


def test_headers_stand_where_infiniband_has_them() -> None:
    write = Write(
        *ADDRESSES, 0x0007_0003, 0x123456, 0xABCDEF, Opcode.WRITE_ONLY_IMMEDIATE, True, b"12345",
        Reth(0x1122334455667788, 0xA1A2A3A4, 5), 0xB1B2B3B4,
    )  # fmt: skip
    whole = encode(write)
    bth, rest = whole[48:60], whole[60:]
    assert whole[40:44].hex() == "000312b7"  # source port: the EV's lower half; 4791
    assert bth.hex() == "0b30ffff0012345680abcdef"
    assert rest[:20].hex() == "1122334455667788a1a2a3a400000005b1b2b3b4"
    assert rest[20:28] == b"12345\0\0\0"
    assert len(rest) == 28 + 4


def test_only_the_first_packet_carries_the_address() -> None:
    middle = Write(*ADDRESSES, 0, 1, 2, Opcode.WRITE_MIDDLE, False, bytes(8))
    assert len(encode(middle)) == 40 + 8 + 12 + 8 + 4


def test_answers_stand_where_infiniband_has_them() -> None:
    ack = encode(Ack(*ADDRESSES, 0, 1, 7, 3))
    nak = encode(Ack(*ADDRESSES, 0, 1, 7, 3, Nak.PSN_SEQUENCE_ERROR))
    cnp = encode(Cnp(*ADDRESSES, 0, 1))
    assert ack[48] == 0x11
    assert ack[60:64].hex() == "1f000003"
    assert nak[60:64].hex() == "60000003"
    assert cnp[48] == 0x81
    assert cnp[52] == 0x40  # BECN
    assert cnp[60:76] == bytes(16)
