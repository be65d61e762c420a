"""tools/wireshark/mrc.lua: tshark reads with it what our decoder reads, in every form of packet."""

import os
import struct
import subprocess
from pathlib import Path

import pytest

from testbed.mrc import Arrival
from testbed.mrc.constants import NackReason
from testbed.mrc.wire.codec import encode
from testbed.mrc.wire.control import Ack, Nack
from testbed.mrc.wire.kinds import Opcode
from tests.commands import completed
from tests.mrc.harness import RKEY, VA, Flying, Network, PathModel, S, make_profile
from tests.mrc.test_vectors import sealed
from tests.mrc.vectors import V1S_OUTER, VECTORS, A, B

from .dissection import (
    IPV4_ETHERTYPE,
    LUA,
    NOTES,
    PROJECT,
    SCRIPT,
    check,
    decoded,
    dissect,
    ethernet,
    inner_packet,
    needs_tshark,
    tshark,
    write_pcap,
)

pytestmark = pytest.mark.programs

CARRIER = "p1_t0_0 > p1_t1_3 > p1_t0_1 > NIC 2 of plane 1"


def ipv4(packet: bytes) -> bytes:
    """The same packet over IPv4. Its iCRC is wrong, which nobody here reads."""
    udp = packet[40:]
    tclass = int.from_bytes(packet[:2], "big") >> 4 & 0xFF
    head = (
        0x45,
        tclass,
        20 + len(udp),
        0,
        0,
        64,
        17,
        0,
        bytes((10, 0, 0, 1)),
        bytes((10, 0, 0, 2)),
    )
    return struct.pack(">BBHHHBBH4s4s", *head) + udp


def carried(packet: bytes, *, srh: bool = False) -> bytes:
    """The packet behind the outer header of the vectors, and behind an SRH."""
    protocol = 41 if packet[0] >> 4 == 6 else 4
    outer = bytearray(V1S_OUTER)
    outer[0:2] = (0x6000 | int.from_bytes(packet[:2], "big") & 0x0FFF).to_bytes(2, "big")
    if protocol == 4:
        outer[0:2] = (0x6000 | packet[1] << 4).to_bytes(2, "big")
    segments = b""
    if srh:
        segments = struct.pack(">BBBBBBH", protocol, 2, 4, 0, 0, 0, 0) + V1S_OUTER[24:]
    outer[4:6] = (len(segments) + len(packet)).to_bytes(2, "big")
    outer[6] = 43 if srh else protocol
    return bytes(outer) + segments + packet


def on_port(packet: bytes, source: int, destination: int) -> bytes:
    return sealed(packet[:40] + struct.pack(">HH", source, destination) + packet[44:])


@needs_tshark
@pytest.mark.parametrize("form", ["bare", "srv6", "srh", "ipv4", "srv6-ipv4", "srh-ipv4", "4971"])
def test_the_vectors_in_every_form(form: str, tmp_path: Path) -> None:
    def framed(packet: bytes) -> bytes:
        if "ipv4" in form:
            packet = ipv4(packet)
        elif form == "4971":
            packet = on_port(packet, 0xC0DE, 4971)
        if form.startswith(("srv6", "srh")):
            return ethernet(carried(packet, srh=form.startswith("srh")))
        return ethernet(packet, IPV4_ETHERTYPE if form == "ipv4" else 0x86DD)

    frames = [framed(packet) for packet in VECTORS.values()]
    shown = dissect(write_pcap(tmp_path / "vectors.pcap", frames))
    assert len(shown) == len(frames)
    for frame, values in zip(frames, shown, strict=True):
        check(frame, values)
        if "ipv4" in form:
            assert int(values["mrc.ev"][0], 0) == int.from_bytes(inner_packet(frame)[20:22], "big")
        else:
            assert decoded(frame) is not None
        carriers = [CARRIER] * (form.startswith("sr") + form.startswith("srh"))
        assert values.get("mrc.carrier", []) == carriers


class Recorded(Network):
    """A network that keeps what arrives, in the outer header that it would have."""

    frames: list[bytes]

    def arrive(self, _: int, flying: Flying) -> None:
        _side, data, arrival = flying
        self.frames.append(ethernet(carried(as_it_arrives(data, arrival))))
        super().arrive(_, flying)


def as_it_arrives(data: bytes, arrival: Arrival) -> bytes:
    """A packet with the class of its arrival, and of a trimmed one with its lengths."""
    packet = bytearray(data)
    word = int.from_bytes(packet[:2], "big") & 0xF00F | (arrival.dscp << 2 | arrival.ecn) << 4
    packet[:2] = word.to_bytes(2, "big")
    if arrival.dscp in {26, 28}:
        packet[4:6] = packet[44:46] = (len(packet) - 40).to_bytes(2, "big")
    return bytes(packet)


@needs_tshark
def test_every_packet_of_a_run_with_faults(tmp_path: Path) -> None:
    network = Recorded(
        make_profile(planes=2),
        default=lambda: PathModel(loss=0.1, trim=0.1, mark=0.1, corrupt=0.02),
        mtu=256,
        cwnd=64 * 256,
    )
    network.frames = []
    for qp in network.qps:
        for wr_id in range(8):
            qp.post_write(wr_id, memoryview(bytes(range(250)) * 4), VA, RKEY)
            qp.post_write(wr_id, memoryview(bytes(703)), VA, RKEY, 7)
    network.run(30 * S)
    frames = network.frames
    file = write_pcap(tmp_path / "run.pcap", frames)
    shown = dissect(file)
    assert len(shown) == len(frames) > 200
    assert sum(decoded(frame) is None for frame in frames) in range(1, len(frames) // 20)
    read = 0
    for frame, values in zip(frames, shown, strict=True):
        if decoded(frame) is not None or "mrc.bth.opcode" in values:
            check(frame, values)
            read += 1
    assert read > 0.97 * len(frames)
    opcodes = {values["mrc.bth.opcode"][0] for values in shown if "mrc.bth.opcode" in values}
    assert opcodes >= {f"0x{code:02x}" for code in (Opcode.WRITE_FIRST, Opcode.SACK, Opcode.NACK)}
    noted = {note for values in shown for note in values.get(NOTES, ())}
    assert noted >= {"Retransmission", "Trimmed", "Congestion seen on the way (ECN)"}
    retransmitted = dissect(file, "-Y", "mrc.note.retransmission")
    assert [values["mrc.bth.rtx"] for values in retransmitted] == [["1"]] * len(retransmitted)


@needs_tshark
def test_notes_and_filters(tmp_path: Path) -> None:
    ends = A, B, 0x0019C0DE, 0x12
    out = b"".join(encode(Nack(*ends, 0x11, NackReason.PSN_OOR_WINDOW, 0x0021BEEF, 0x900, 0), 46))
    nak = bytearray(b"".join(encode(Ack(*ends, 0x100, 0), 46)))
    nak[60] = 0x62
    short = bytearray(VECTORS["V4"][:-12])
    short[4:6] = short[44:46] = (len(short) - 40).to_bytes(2, "big")
    marked = bytearray(VECTORS["V1"])
    marked[1] |= 0x30
    version = bytearray(VECTORS["V3"])
    version[49] |= 1
    packets = [*VECTORS.values(), out, nak, short, marked, version]
    file = write_pcap(tmp_path / "notes.pcap", [ethernet(bytes(packet)) for packet in packets])
    notes = {
        2: "Retransmission",
        4: "The packet that is answered had seen congestion",
        5: "Trimmed",
        11: "Out of the responder's window",
        12: "The responder failed a work request",
        13: "Ends within a header",
        14: "Congestion seen on the way (ECN)",
        15: "Not transport version 0",
    }
    for number, values in enumerate(dissect(file), 1):
        assert values.get(NOTES, []) == ([notes[number]] if number in notes else []), number
    for display_filter, frames in {
        "mrc.sack.cack == 256 and mrc.sack.m == 1": [4, 13],
        "mrc.ev == 0x0021beef": [6, 7, 8, 9],
        "mrc.nack.reason == 11 or mrc.request_id == 7 or mrc.note.ecn": [8, 9, 11, 14],
    }.items():
        shown = tshark("-r", file, "-Y", display_filter, "-T", "fields", "-e", "frame.number")
        assert [int(line) for line in shown.split()] == frames, display_filter


@needs_tshark
@pytest.mark.parametrize("port", [0, 7, 53, 67, 123, 4791, 65535])
def test_any_source_port_may_be_half_of_an_ev(port: int, tmp_path: Path) -> None:
    frames = [ethernet(on_port(packet, port, 4791)) for packet in VECTORS.values()]
    shown = dissect(write_pcap(tmp_path / "ports.pcap", frames))
    for frame, values in zip(frames, shown, strict=True):
        check(frame, values)


@needs_tshark
def test_the_order_of_an_evs_halves_is_a_preference(tmp_path: Path) -> None:
    file = write_pcap(tmp_path / "order.pcap", [ethernet(VECTORS["V5"])])
    (values,) = dissect(file, "-o", "mrc.label_first:FALSE")
    assert int(values["mrc.nack.ev"][0], 0) == 0xBEEF0021


@needs_tshark
def test_packets_of_rocev2_are_left_to_its_dissector(tmp_path: Path) -> None:
    other = bytearray(VECTORS["V3"])
    other[48] = 0x11  # RC Acknowledge
    file = write_pcap(tmp_path / "roce.pcap", [ethernet(sealed(bytes(other)))])
    names = ("infiniband.bth.opcode", "mrc.bth.opcode")
    shown = tshark("-r", file, "-T", "fields", *(word for name in names for word in ("-e", name)))
    assert shown.split() == ["17"]


@needs_tshark
def test_make_wireshark_installs_it(tmp_path: Path) -> None:
    beside = tmp_path / ".local" / "lib" / "wireshark" / "plugins" / "other.lua"
    beside.parent.mkdir(parents=True)
    beside.write_text("-- somebody's\n")
    home = os.environ | {"HOME": str(tmp_path)}
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        home.pop(name, None)
    for _ in range(2):
        subprocess.run(
            ["make", "-s", "wireshark"], cwd=PROJECT, env=home, check=True, capture_output=True
        )
    assert beside.read_text() == "-- somebody's\n"
    assert beside.with_name("mrc.lua").read_text() == LUA.read_text()
    file = write_pcap(tmp_path / "one.pcap", [ethernet(VECTORS["V4"])])
    shown = completed(
        ["tshark", "-r", file, "-T", "fields", "-e", "mrc.sack.cack"], env=home, check=True
    )
    assert shown.stdout.split() == ["256"]


def test_the_dissector_has_the_tables_of_the_declarations() -> None:
    dissector = LUA.read_text()
    assert SCRIPT.with_declarations(dissector) == dissector
    assert SCRIPT.declarations() in dissector
