import pytest

from testbed.mrc import AccessError, MemoryRegion, MemoryTable, PayloadRegion
from testbed.mrc.message import BoundsError, RkeyError

RKEY = 7
VA = 0x1000


def table(size: int = 64) -> tuple[MemoryTable, bytearray]:
    buffer = bytearray(size)
    memory = MemoryTable()
    memory.register(MemoryRegion(RKEY, VA, memoryview(buffer)))
    return memory, buffer


def test_places_up_to_both_edges() -> None:
    memory, buffer = table()
    memory.place(RKEY, VA, b"first")
    memory.place(RKEY, VA + 60, b"last")
    assert buffer == b"first" + bytes(55) + b"last"


@pytest.mark.parametrize(
    ("rkey", "va", "payload"),
    [
        (RKEY, VA - 1, b"x"),
        (RKEY, VA + 64, b"x"),
        (RKEY, VA + 61, b"over"),
        (RKEY, 0, b"x"),
        (RKEY + 1, VA, b"x"),
    ],
)
def test_refuses_what_is_not_inside(rkey: int, va: int, payload: bytes) -> None:
    memory, buffer = table()
    with pytest.raises(RkeyError if rkey != RKEY else BoundsError):
        memory.place(rkey, va, payload)
    assert not any(buffer)


@pytest.mark.parametrize(
    ("rkey", "va", "payload"),
    [(RKEY, VA - 1, b"x"), (RKEY, VA + 61, b"over"), (RKEY + 1, VA, b"x")],
)
def test_kept_payloads_are_checked_alike(rkey: int, va: int, payload: bytes) -> None:
    memory, region = MemoryTable(), PayloadRegion(RKEY, VA, 64)
    memory.register(region)
    with pytest.raises(RkeyError if rkey != RKEY else BoundsError):
        memory.place(rkey, va, payload)
    assert not region.payloads
    with pytest.raises(ValueError, match="already registered"):
        memory.register(PayloadRegion(RKEY, 0, 1))


def test_payloads_are_taken_up_to_a_gap_and_only_once() -> None:
    memory, region = MemoryTable(), PayloadRegion(RKEY, VA, 64)
    memory.register(region)
    for at, payload in ((4, b"cd"), (0, b"abcd"), (8, b"late")):
        memory.place(RKEY, VA + at, payload)
    assert [bytes(part) for part in region.take(0, 12)] == [b"abcd", b"cd"]
    assert region.take(0, 12) == []
    assert [bytes(part) for part in region.take(8, 12)] == [b"late"]


def test_deregistered_memory_is_out_of_reach() -> None:
    memory, buffer = table()
    memory.deregister(RKEY)
    with pytest.raises(AccessError):
        memory.place(RKEY, VA, b"x")
    assert not any(buffer)


def test_an_rkey_names_one_region() -> None:
    memory, _ = table()
    with pytest.raises(ValueError, match="already registered"):
        memory.register(MemoryRegion(RKEY, 0, memoryview(bytearray(1))))


def test_a_region_must_be_writable() -> None:
    with pytest.raises(ValueError, match="writable"):
        MemoryTable().register(MemoryRegion(RKEY, VA, memoryview(b"constant")))
