"""Encodes transmissions as datagrams, and tells which of them a SACK or NACK answers."""

from testbed.mrc.config import QpConfig
from testbed.mrc.constants import ECT0, Opcode
from testbed.mrc.recovery.transmission import Transmission
from testbed.mrc.wire.codec import encode_write
from testbed.mrc.wire.datagram import Datagram, new
from testbed.mrc.wire.packets import Nack, Sack
from testbed.mrc.wire.psn import wrap_msn, wrap_psn


def pack(
    config: QpConfig, transmission: Transmission, tx_timestamp: int | None, ack_request: bool
) -> Datagram:
    """Return the WRITE packet of a transmission; its payload is a view of the message's.

    `tx_timestamp` None leaves out the TSETH.
    """
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
    repeated = transmission.repeated
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
        0 if message.immediate is None else wrap_msn(message.immediates),
        wrap_msn(message.number),
        tx_timestamp,
        message.va + offset,
        message.rkey,
        message.length,
        payload,
        dscp,
        immediate,
        config.own_unit,
        config.wire.udp_port,
    )
    return new(Datagram, (ev, dscp, header, payload, trailer, seq, repeated, ECT0, transmission))


class Stamps:
    """The timestamps of one requester's packets, by which transmissions of a PSN are told apart.

    The EV and the echo of BTH.rtx in a SACK tell them apart too, where there are no timestamps.
    """

    def __init__(self, config: QpConfig) -> None:
        self._config = config
        self._shift = config.timestamp_shift
        self._used = config.timestamps

    def pack(self, transmission: Transmission, *, ack_request: bool) -> Datagram:
        """Return the WRITE packet of a transmission, with its timestamp if there are any."""
        timestamp = self._of(transmission) if self._used else None
        return pack(self._config, transmission, timestamp, ack_request)

    def _of(self, transmission: Transmission) -> int:
        return transmission.sent_ns >> self._shift & 0xFFFF

    def answers(self, sack: Sack, transmission: Transmission) -> bool:
        """Whether a SACK, triggered by the PSN of this transmission, was triggered by it."""
        return (
            transmission.repeated is sack.retransmitted
            and transmission.ev.value == sack.reflected_ev
            and (not self._used or sack.cc_type != 0 or self._of(transmission) == sack.tx_timestamp)
        )

    def refuses(self, nack: Nack, transmission: Transmission, *, too_early: bool) -> bool:
        """Whether a NACK of the PSN of this transmission is about it.

        `too_early` says that this is too soon for an answer, where there are no timestamps.
        """
        same = self._of(transmission) == nack.tx_timestamp if self._used else not too_early
        return same and transmission.ev.value == nack.reflected_ev
