"""The packets of a message: their opcodes, what they carry and in which class."""

import pytest

from testbed.mrc import decode
from testbed.mrc.entropy import Ev
from testbed.mrc.message import Message
from testbed.mrc.transmission import Packer, Transmission
from testbed.mrc.wire.kinds import Opcode, Write

from .harness import RKEY, VA, Network, make_profile

MTU = 256
CONFIG = Network(make_profile(), mtu=MTU).qps[0].config
EV = Ev(value=0x0003_0009, plane=1, path_key=0)
FIRST_SEQ = (1 << 24) - 1
SENT_NS = 0xABCD << CONFIG.timestamp_shift


def packets(length: int, immediate: int | None, *, again: bool = False) -> list[Write]:
    payload = bytes(range(256)) * (length // 256 + 1)
    message = Message(70_000, 0, memoryview(payload)[:length], VA, RKEY, immediate)
    writes = []
    for number, offset in enumerate(range(0, max(length, 1), MTU)):
        size = min(MTU, length - offset)
        sent = Transmission(FIRST_SEQ + number, message, offset, size, EV, 0, SENT_NS, None)
        if again:
            sent = Transmission(FIRST_SEQ + number, message, offset, size, EV, 1, SENT_NS, sent)
        datagram = Packer(CONFIG).pack(sent, ack_request=number == 2)
        classes = CONFIG.dscp
        assert datagram.dscp == (classes.trimmable_retx if again else classes.trimmable)
        assert (datagram.seq, datagram.ev, datagram.retransmitted) == (sent.seq, EV.value, again)
        write = decode(datagram.join())
        assert isinstance(write, Write)
        writes.append(write)
    return writes


@pytest.mark.parametrize(
    ("length", "immediate", "opcodes"),
    [
        (0, None, ["WRITE_ONLY"]),
        (MTU, None, ["WRITE_ONLY"]),
        (1, 7, ["WRITE_ONLY_IMMEDIATE"]),
        (MTU + 1, None, ["WRITE_FIRST", "WRITE_LAST"]),
        (2 * MTU, 7, ["WRITE_FIRST", "WRITE_LAST_IMMEDIATE"]),
        (4 * MTU, None, ["WRITE_FIRST", "WRITE_MIDDLE", "WRITE_MIDDLE", "WRITE_LAST"]),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_each_packet_says_where_in_the_message_it_stands(
    length: int, immediate: int | None, opcodes: list[str], again: bool
) -> None:
    writes = packets(length, immediate, again=again)
    assert [Opcode(write.opcode).name for write in writes] == opcodes
    assert b"".join(write.payload for write in writes) == (bytes(range(256)) * 5)[:length]
    assert [write.va for write in writes] == [VA + MTU * i for i in range(len(writes))]
    assert [write.immediate for write in writes] == [None] * (len(writes) - 1) + [immediate]
    assert [write.ack_request for write in writes] == [i == 2 for i in range(len(writes))]
    assert {write.dma_length for write in writes} == {length}
    assert {write.retransmitted for write in writes} == {again}
    assert {(write.msn, write.tx_timestamp) for write in writes} == {(70_000 & 0xFFFF, 0xABCD)}
    assert [write.psn for write in writes] == [0xFFFFFF, 0, 1, 2][: len(writes)]
