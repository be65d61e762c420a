"""Everything that must not be acted on: each as bytes, with the reason that it is counted under.

The same packets are thrown at the protocol core and, as real ones, at a live endpoint.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.mrc.constants import IPV6_BYTES, DscpClasses, EndpointOp, EvMark, NackReason
from testbed.mrc.wire.codec import encode, icrc
from testbed.mrc.wire.control import Ack, Control, EndpointRequest, EndpointResponse, Nack, Sack
from testbed.mrc.wire.headers import BTH, UDP
from testbed.mrc.wire.kinds import Opcode, Write

from .test_wire import write_bytes

DSCP = DscpClasses()
VERSION_AT = IPV6_BYTES + UDP.size + 1
FLAGS_AT = IPV6_BYTES + UDP.size + 8
TS = BTH.mask("ts") >> 24
NEVER_SENT = 0xFFF0
"""The id of a request that no endpoint has sent yet."""
PAYLOAD = b"must not be placed"
FAILED_OPERATIONS = {"unknown_rkey", "out_of_bounds", "invalid_request"}
"""Such a packet counts as received, but its operation fails."""


@dataclass(frozen=True)
class Bad:
    """One bad packet: what it is, its bytes, its class, the counter that must count it."""

    what: str
    data: bytes
    reason: str
    dscp: int = DSCP.trimmable


def seal(inner: bytes | bytearray) -> bytes:
    """Put the iCRC that fits at the end of a packet."""
    return bytes(inner[:-4]) + icrc(bytes(inner[:-4]), b"").to_bytes(4, "little")


def control_bytes(packet: Control) -> bytes:
    """The bytes of a control packet."""
    return b"".join(encode(packet, DSCP.control))


def good_write(peer: bytes, own: bytes, *, qpn: int, psn: int, va: int, rkey: int) -> Write:
    """A WRITE that would be placed."""
    return Write(
        source=peer,
        destination=own,
        ev=0,
        qpn=qpn,
        psn=psn,
        opcode=Opcode.WRITE_ONLY,
        ack_request=False,
        retransmitted=False,
        rqmsn=0,
        msn=0,
        tx_timestamp=0,
        va=va,
        rkey=rkey,
        dma_length=len(PAYLOAD),
        payload=PAYLOAD,
    )


def bad_packets(write: Write, *, region_end: int, mtu: int, stranger: bytes) -> Iterator[Bad]:
    """Yield one packet of each kind.

    Args:
        write: one that would be placed.
        region_end: the address behind the region of its rkey.
        mtu: the queue pair's.
        stranger: the address of a NIC that is no peer.
    """
    whole = write_bytes(write)

    def changed(**fields: object) -> bytes:
        return write_bytes(write._replace(**fields))  # type: ignore[arg-type]

    def patched(at: int, value: int) -> bytes:
        data = bytearray(whole)
        data[at] = value
        return seal(data)

    flipped = bytearray(whole)
    flipped[-10] ^= 1
    yield Bad("a bit of the payload flipped", bytes(flipped), "bad_icrc")
    yield Bad("cut in its headers", whole[:70], "bad_length")
    yield Bad("cut in the BTH", whole[:50], "truncated")
    yield Bad("longer than it says", whole + b"more", "bad_length")
    yield Bad("a trimmed class, too short", whole[:66], "truncated", DSCP.trimmed)
    yield Bad("inner IPv4", patched(0, 0x45), "not_ipv6")
    yield Bad("inner TCP", patched(6, 6), "not_udp")
    yield Bad("another UDP port", patched(43, 0), "wrong_port")
    yield Bad("an opcode of RC", patched(48, 0x0A), "unknown_opcode")
    yield Bad(
        "another transport version", patched(VERSION_AT, whole[VERSION_AT] | 1), "wrong_version"
    )
    trimmed = patched(VERSION_AT, whole[VERSION_AT] | 1)[:68]
    yield Bad("a trimmed one of it", trimmed, "wrong_version", DSCP.trimmed)
    flags = FLAGS_AT, whole[FLAGS_AT] & ~TS
    yield Bad("trimmed within METH", patched(*flags)[:63], "truncated", DSCP.trimmed)
    yield Bad("a queue pair that is not", changed(qpn=write.qpn ^ 0x4000), "unknown_qp")
    yield Bad("from a NIC that is no peer", changed(source=stranger), "not_a_peer")
    yield Bad("for another NIC", changed(destination=stranger), "misdirected")
    yield Bad("above the window", changed(psn=(write.psn + 32_640) & 0xFFFFFF), "out_of_window")
    yield Bad("a wrong rkey", changed(rkey=write.rkey ^ 1), "unknown_rkey")
    yield Bad("one byte past the end", changed(va=region_end - len(PAYLOAD) + 1), "out_of_bounds")
    yield Bad("before the region", changed(va=0), "out_of_bounds")
    yield Bad("round the end of memory", changed(va=(1 << 64) - 1), "out_of_bounds")
    yield Bad("shorter than its message", changed(dma_length=mtu), "invalid_request")
    yield Bad(
        "a payload above the MTU",
        changed(payload=bytes(mtu + 8), dma_length=mtu + 8),
        "invalid_request",
    )
    yield Bad(
        "a middle packet that is not full",
        changed(opcode=Opcode.WRITE_MIDDLE, dma_length=3 * mtu),
        "invalid_request",
    )
    far = (write.psn + 1_000_000) & 0xFFFFFF
    ends = write.source, write.destination, write.ev, write.qpn
    yield Bad("an ACK of what was never sent", control_bytes(Ack(*ends, far, 0)), "implausible")
    sack = Sack(*ends, False, 0, 0, EvMark.NONE, False, 0, 0, far, 8, 1, 0, 0, 0, False, 0, 0)
    yield Bad("a SACK of what was never sent", control_bytes(sack), "implausible")
    for reason in NackReason:
        nack = Nack(*ends, 0, reason, 0, far, 0)
        yield Bad(f"a NACK ({reason.name}) of it", control_bytes(nack), "implausible")
    nak = bytearray(control_bytes(Ack(*ends, far, 0)))
    nak[-8] = 0x60
    yield Bad("a NAK of RC's, not of MRC's", seal(nak), "bad_field")
    for op in EndpointOp:
        request = EndpointRequest(stranger, write.destination, 0, op, 1, 0, 0)
        yield Bad(f"{op.name} of a stranger's", control_bytes(request), "not_a_peer")
        response = EndpointResponse(write.source, write.destination, 0, op, NEVER_SENT, 0)
        yield Bad(f"an answer to no {op.name}", control_bytes(response), "unknown_request")
    request = EndpointRequest(write.source, stranger, 0, EndpointOp.EV_PROBE, 1, 0, 0)
    yield Bad("an EV probe for another NIC", control_bytes(request), "misdirected")
