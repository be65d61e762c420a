"""Messages in a byte stream, in whatever pieces it is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.endpoint.kernel_tcp import Frame, FrameReader
from testbed.mrc import MemoryRegion, MemoryTable
from testbed.mrc.message import AccessError

VA, RKEY, SLOT = 0x1000, 7, 64


def _memory() -> tuple[MemoryTable, memoryview]:
    table, buffer = MemoryTable(), memoryview(bytearray(4 * SLOT))
    table.register(MemoryRegion(RKEY, VA, buffer))
    return table, buffer


def _stream(messages: list[bytes], *, told: bool = False) -> bytes:
    return b"".join(
        Frame(VA + i % 4 * SLOT, RKEY, len(one), i if told else None).encode() + one
        for i, one in enumerate(messages)
    )


@given(
    st.lists(st.binary(min_size=1, max_size=SLOT), max_size=20),
    st.data(),
)
def test_any_pieces_of_the_stream_make_the_same_messages(
    messages: list[bytes], data: st.DataObject
) -> None:
    memory, buffer = _memory()
    reader, stream, at, found, payload = FrameReader(memory), _stream(messages), 0, 0, 0
    while at < len(stream):
        wanted = reader.next_size
        if not wanted:
            reader.release()
            continue
        size = data.draw(st.integers(1, wanted))
        piece = stream[at : at + size]
        at += len(piece)
        count, frame = reader.feed(piece)
        payload += count
        if frame is not None:
            start = frame.va - VA
            assert buffer[start : start + frame.length] == messages[found]
            found += 1
    assert found == len(messages)
    assert payload == sum(map(len, messages))


def test_a_message_waits_until_the_one_in_its_place_was_seen() -> None:
    memory, buffer = _memory()
    reader = FrameReader(memory)
    stream = _stream([bytes([i]) * SLOT for i in range(5)])
    at = 0
    while reader.next_size:
        count = reader.next_size
        reader.feed(stream[at : at + count])
        at += count
    assert buffer[0] == 0, "the fifth goes where the first is"
    reader.release()
    reader.feed(stream[at : at + reader.next_size])
    assert buffer[0] == 4


def test_the_receiver_is_told_what_was_sent() -> None:
    for immediate in (None, 0, 0xFFFF_FFFF):
        frame = Frame(VA, RKEY, SLOT, immediate)
        assert Frame.decode(frame.encode()) == frame


def test_memory_is_guarded() -> None:
    memory, _ = _memory()
    reader = FrameReader(memory)
    reader.feed(Frame(VA + 4 * SLOT - 1, RKEY, 2, None).encode())
    with pytest.raises(AccessError):
        reader.feed(b"xx")
