"""What tshark shows of frames with tools/wireshark/mrc.lua, and what our decoder says of them."""

import struct
from collections.abc import Iterable
from pathlib import Path

from testbed.model.fabric.addressing import LOCATOR_BLOCK, PLANE_SHIFT, Role
from testbed.model.fabric.nodes import Node, Tier
from testbed.mrc import DecodeError, DscpClasses, decode
from testbed.mrc.wire.control import EndpointRequest, EndpointResponse, Packet
from testbed.mrc.wire.headers import BTH, METH, TSETH
from testbed.mrc.wire.kinds import CC_STATE, COMMON, KIND_OF, WRITE, TrimmedWrite, Write
from tests.commands import completed
from tests.judging import skip_without
from tests.modules import SCRIPTS, module_at
from tests.mrc.test_vectors import said
from tests.packet_reader import headers_behind

PROJECT = Path(__file__).parents[2]
LUA = PROJECT / "tools" / "wireshark" / "mrc.lua"
IPV6_ETHERTYPE, IPV4_ETHERTYPE = 0x86DD, 0x0800
SEPARATOR = "|"

needs_tshark = skip_without("tshark")

Values = dict[str, list[str]]
"""What a frame's fields show, by their filter names."""


SCRIPT = module_at(SCRIPTS / "wireshark_fields.py")
"""Writes the tables of the dissector."""
DECLARED = sorted(
    {
        SCRIPT.filter_name(header, place.field)
        for header in SCRIPT.PREFIXES
        for place in header.places()
        if not place.field.reserved
    }
)
"""Every field of every header."""
COMMON_NAMES = {"source", "destination", "label", "source_port"}
"""Fields of IPv6 and UDP, which Wireshark itself reads."""
OTHERS = ("mrc.ev", "mrc.request_id", "mrc.carrier", "mrc.payload", "mrc.padding", "mrc.icrc")
NOTES = "_ws.expert.message"


def ethernet(packet: bytes, ethertype: int = IPV6_ETHERTYPE) -> bytes:
    return bytes(12) + ethertype.to_bytes(2, "big") + packet


def write_pcap(file: Path, frames: Iterable[bytes]) -> Path:
    records = b"".join(
        struct.pack("=IIII", number, 0, len(frame), len(frame)) + frame
        for number, frame in enumerate(frames)
    )
    file.write_bytes(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, 1) + records)
    return file


def tshark(*arguments: str | Path, lua: Path | None = LUA) -> str:
    plugin = () if lua is None else ("-X", f"lua_script:{lua}")
    done = completed(["tshark", *plugin, *arguments])
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout


def dissect(file: Path, *options: str) -> list[Values]:
    """The fields of each frame that tshark shows."""
    names = [*DECLARED, *OTHERS, NOTES]
    fields = [word for name in names for word in ("-e", name)]
    form = ("-T", "fields", "-E", f"separator={SEPARATOR}", "-E", "aggregator=;")
    shown = tshark("-r", file, *form, *fields, *options)
    return [
        {
            name: text.split(";")
            for name, text in zip(names, line.split(SEPARATOR), strict=True)
            if text
        }
        for line in shown.splitlines()
    ]


def inner_packet(frame: bytes) -> bytes:
    """The packet behind the outer headers, IPv6 or IPv4."""
    ethertype, packet = int.from_bytes(frame[12:14], "big"), frame[14:]
    while ethertype == IPV6_ETHERTYPE and packet[6] in {41, 43, 4}:
        following, behind = packet[6], 40
        if following == 43:  # SRH
            following, behind = packet[40], behind + 8 + 8 * packet[41]
        ethertype = IPV4_ETHERTYPE if following == 4 else IPV6_ETHERTYPE
        packet = packet[behind:]
    return packet


def carrier_names(address: bytes) -> str:
    """The names of the nodes whose uSIDs an address carries; empty if it carries none."""
    if int.from_bytes(address[:4], "big") != LOCATOR_BLOCK:
        return ""
    names = []
    for (usid,) in struct.iter_unpack(">H", address[4:]):
        if not usid:
            break
        role, plane, index = usid >> 12, usid >> PLANE_SHIFT & 7, usid & (1 << PLANE_SHIFT) - 1
        if role == Role.NIC:
            names.append(f"NIC {index} of plane {plane}")
        else:
            names.append(Node(Tier(Role(role).name.lower()), plane, index).name)
    return " > ".join(names)


def decoded(frame: bytes) -> Packet | None:
    """What our decoder makes of a frame; None if it refuses it."""
    classes = DscpClasses()
    packet = inner_packet(frame)
    trimmed = packet[0] >> 4 == 6 and _dscp(packet) in {classes.trimmed, classes.trimmed_lasthop}
    try:
        return decode(packet, trimmed=trimmed)
    except DecodeError:
        return None


def _dscp(packet: bytes) -> int:
    return int.from_bytes(packet[:2], "big") >> 6 & 0x3F


def expected(packet: bytes) -> dict[str, int]:
    """The fields of a packet by the declarations: those of BTH and of what follows."""
    at = sum(header.size for header in COMMON[:2])
    bth = BTH.read(packet, at)
    kind = KIND_OF[bth["opcode"]]
    found = [(BTH, bth)]
    at += BTH.size
    following = headers_behind(bth["opcode"], ts=bool(bth["ts"]))
    cut = kind is WRITE and len(packet) < at + sum(header.size for header in following) + 4
    for header in following:
        if cut and header not in {METH, TSETH}:
            break
        values = header.read(packet, at)
        at += header.size
        if header is CC_STATE and found[-1][1]["cc_type"]:
            continue
        found.append((header, values))
    named = {(header, field.field.name): field for header, _ in found for field in header.places()}
    return {
        SCRIPT.filter_name(header, named[header, name].field): value
        for header, values in found
        for name, value in values.items()
    }


def check(frame: bytes, shown: Values) -> None:
    """Every field that tshark shows is as declared and as the decoder says, and none is missing."""
    packet = inner_packet(frame)
    numbers = {name: int(shown[name][0], 0) for name in DECLARED if name in shown}
    assert all(len(shown[name]) == 1 for name in numbers)
    if packet[0] >> 4 == 4:  # as if it were IPv6: our decoder reads no IPv4
        packet = bytes(40) + packet[20:]
    assert numbers == expected(packet)
    value = decoded(frame)
    if value is None:
        return
    assert int(shown["mrc.ev"][0], 0) == value.ev
    assert shown.get("mrc.carrier", [""])[0] == carrier_names(frame[38:54])
    short = {name.rsplit(".", 1)[1]: number for name, number in numbers.items()}
    for name, number in codec_fields(value).items():
        assert short[SCRIPT.SHORT.get(name, name)] == number, name
    if isinstance(value, Write):
        assert bytes.fromhex(shown.get("mrc.payload", [""])[0]) == bytes(value.payload)
    elif isinstance(value, EndpointRequest | EndpointResponse):
        assert int(shown["mrc.request_id"][0]) == value.request_id
    if not isinstance(value, TrimmedWrite):
        assert int(shown["mrc.icrc"][0], 0).to_bytes(4, "little") == packet[-4:]


def codec_fields(packet: Packet) -> dict[str, int]:
    """What the codec reads in the headers of MRC."""
    fields = said(packet)
    if isinstance(packet, TrimmedWrite):
        fields |= {"psn": packet.psn, "msn": packet.msn}
        if packet.tx_timestamp is not None:
            fields["tx_timestamp"] = packet.tx_timestamp
    return {name: number for name, number in fields.items() if name not in COMMON_NAMES}
