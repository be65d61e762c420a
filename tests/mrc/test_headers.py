"""The declarations of the headers: the vectors as they read them, and the document they write."""

from pathlib import Path
from random import Random

import pytest

from testbed.model.fabric import topology
from testbed.model.fabric.topology import ETHERNET_HEADER, PAYLOAD_MTU
from testbed.model.transport import Roce
from testbed.mrc.constants import ICRC_BYTES
from testbed.mrc.wire import headers, kinds
from testbed.mrc.wire.codec import WRITE_HEADER_BYTES
from testbed.mrc.wire.headers import BASE_BYTES, IPV6, Field, Header
from testbed.mrc.wire.kinds import COMMON, HEADERS, KIND_OF, KINDS, WRITE
from tests.modules import SCRIPTS, module_at
from tests.packet_reader import headers_behind, read

from .vectors import V1S_OUTER, VECTORS

PROJECT = Path(__file__).parents[2]

READ = {
    "V1": "dscp 10, ecn 2, label 0x19, source_port 0xc0de, udp_length 64, opcode 0xca, pad 3, "
    "dqp 0x12, ack_request 1, rtx 0, ts 1, psn 0x100, rqmsn 0, msn 0, tx_timestamp 0x1a2b, tsr 0, "
    "ftype 1, va 0x700000000000, rkey 0x1234, dma_length 13",
    "V2": "dscp 18, ack_request 1, rtx 1, ts 0, psn 0x101, rqmsn 0, msn 1, va 0x700000001000, "
    "dma_length 8, immediate 0xc0ffee01",
    "V3": "dqp 0x11, psn 0x100, syndrome 0x1f, msn 1",
    "V4": "psn 0x100, m 1, pr 0, ack_psn_offset 3, entropy 0x19c0de, spdcid 0x12, dpdcid 0x11, "
    "cack_psn 0x100, cc_type 0, mpr 0, sack_offset 1, bitmap 6, tx_timestamp 0x1a2b, ooo_count 2, "
    "rcv_cwnd_pen 0, rcvd_bytes 0x22",
    "V5": "psn 0x101, nack_reason 1, vendor_info 0, entropy 0x21beef, nack_psn 0x101, cc_type 2, "
    "tx_timestamp 0x1a2c",
    "V6": "dscp 10, psn 0, vendor_info 0, probe_id 0x42, spdcid 0x11, dpdcid 0x12, "
    "tx_timestamp 0x1a40, tsr 0, ftype 1",
    "V7": "pr 1, ack_psn_offset 0x42, entropy 0x21beef, tx_timestamp 0x1a40",
    "V8": "dqp 2, psn 7, op 1, port_status_mask 0, tx_timestamp 0x1a50, ftype 1",
    "V9": "dqp 2, psn 7, op 1, tx_timestamp 0x1a50",
    "V10": "dqp 2, psn 8, op 0, port_status_mask 0xb, tx_timestamp 0x1a60",
}
"""Fields of the vectors, as their source explains them."""


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_reads_as_its_source_explains_it(name: str) -> None:
    fields = {key: value for _, values in read(VECTORS[name]) for key, value in values.items()}
    for expected in READ[name].split(", "):
        key, value = expected.split(" ")
        assert fields[key] == int(value, 0), key


@pytest.mark.parametrize("name", VECTORS)
def test_what_is_read_of_a_vector_builds_it_again(name: str) -> None:
    packet = VECTORS[name]
    built = b"".join(header.build(**values) for header, values in read(packet))
    assert packet.startswith(built)


def test_the_outer_header_is_ipv6_in_ipv6_to_the_usids() -> None:
    outer = headers.IPV6.read(V1S_OUTER)
    assert (outer["next_header"], outer["length"], outer["label"]) == (41, 104, 0x19)
    assert f"{outer['destination']:032x}" == "5f000000120022031201320200000000"


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_the_format_of_a_header_reads_what_its_fields_say(header: Header) -> None:
    rng = Random(header.name)
    words = [word for word in header.words if any(not field.reserved for field in word)]
    names = [next(field.name for field in word if not field.reserved) for word in words]
    data = rng.randbytes(header.size)
    fast = header.struct(*names).unpack(data)
    slow = header.read(data)
    for word, value in zip(words, fast, strict=True):
        number = int.from_bytes(value, "big") if isinstance(value, bytes) else value
        for field in word:
            if not field.reserved:
                read_fast = (
                    number
                    if field.signed
                    else (number & header.mask(field.name)) >> header.shift(field.name)
                )
                assert read_fast == slow[field.name]


def test_every_packet_kind_has_the_length_that_the_sources_give() -> None:
    lengths = {
        f"{code:02X}": 8 + 12 + sum(header.size for header in headers_behind(code, ts=False)) + 4
        for kind in KINDS
        for code in kind.opcodes
    }
    assert lengths == {
        **dict.fromkeys(("C6", "C7", "C8", "CA"), 44),
        **dict.fromkeys(("C9", "CB"), 48),
        "D1": 28,
        "DC": 60,
        "DD": 44,
        "DE": 40,
        "D8": 40,
        "D9": 60,
    }
    assert sum(header.size for header in COMMON) == 60
    assert len(KIND_OF) == 12


def test_a_header_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="no word"):
        Header("X", "", "", ((Field("a", 24),),))
    with pytest.raises(ValueError, match="twice"):
        Header("X", "", "", ((Field("a", 8),), (Field("a", 8),)))
    with pytest.raises(ValueError, match="is 0 to 15, not 16"):
        kinds.SETH.build(cc_type=16)
    with pytest.raises(KeyError, match="no field colour"):
        kinds.AETH.build(colour=1)
    with pytest.raises(ValueError, match="4 bytes, there are 3"):
        headers.METH.read(bytes(3))


def test_the_document_has_the_tables_of_the_declarations() -> None:
    script = module_at(SCRIPTS / "wire_tables.py")
    document = script.DOCUMENT.read_text()
    assert script.with_tables(document) == document
    assert all(f"<!-- header {header.name} -->" in document for header in HEADERS)


def test_the_model_counts_the_headers_of_a_full_packet() -> None:
    """It adds them up by itself, as it imports nothing."""
    full = IPV6.size + WRITE_HEADER_BYTES + ICRC_BYTES
    assert full == topology.HEADERS
    behind_the_first = ETHERNET_HEADER + IPV6.size + BASE_BYTES + PAYLOAD_MTU + ICRC_BYTES
    assert round(PAYLOAD_MTU / Roce().payload_share) == behind_the_first


def test_records_have_a_name_for_each_control_packet() -> None:
    assert [kind.name for kind in KINDS if not kind.recorded] == [WRITE.name]
