"""Encodes a transmission as a datagram."""

from testbed.mrc.config import QpConfig
from testbed.mrc.constants import ECT0, Opcode
from testbed.mrc.recovery.transmission import Transmission
from testbed.mrc.wire.codec import encode_write
from testbed.mrc.wire.datagram import Datagram, new
from testbed.mrc.wire.psn import wrap_msn, wrap_psn


def pack(
    config: QpConfig, transmission: Transmission, tx_timestamp: int, ack_request: bool
) -> Datagram:
    """Return the WRITE packet of a transmission; its payload is a view of the message's."""
    message = transmission.message
    offset, length, seq = transmission.offset, transmission.length, transmission.seq
    end = offset + length
    immediate: int | None = None
    if end == message.length:
        immediate = message.immediate
        if immediate is None:
            opcode = Opcode.WRITE_ONLY if offset == 0 else Opcode.WRITE_LAST
        elif offset == 0:
            opcode = Opcode.WRITE_ONLY_IMMEDIATE
        else:
            opcode = Opcode.WRITE_LAST_IMMEDIATE
    else:
        opcode = Opcode.WRITE_FIRST if offset == 0 else Opcode.WRITE_MIDDLE
    repeated = transmission.previous is not None
    dscp = config.dscp.trimmable_retx if repeated else config.dscp.trimmable
    payload = message.payload[offset:end]
    ev = transmission.ev.value
    header, trailer = encode_write(
        config.local_address,
        config.peer_address,
        ev,
        config.peer_qpn,
        wrap_psn(seq),
        opcode,
        ack_request,
        repeated,
        0,
        wrap_msn(message.number),
        tx_timestamp,
        message.va + offset,
        message.rkey,
        message.length,
        payload,
        dscp,
        immediate,
    )
    return new(Datagram, (ev, dscp, header, payload, trailer, seq, repeated, ECT0, transmission))
