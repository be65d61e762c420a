"""Messages: each in its slot, with its content, and checked where it lands."""

from dataclasses import dataclass, field

import pytest

from testbed.host.workloads.messages import Block, Checker, Pattern, Sender, Slots, rkey_of
from testbed.mrc import (
    Completion,
    CompletionStatus,
    MemoryTable,
    MessageDelivered,
    PayloadRegion,
)

SIZE, DEPTH, FLOW = 1000, 4, 2


@dataclass
class _Wire:
    """A queue pair that places what is posted in the peer's memory at once."""

    memory: MemoryTable
    posted: list[tuple[int, int, int, int]] = field(default_factory=list)
    immediates: list[int] = field(default_factory=list)
    done: int = 0

    def post_write(
        self,
        wr_id: int,
        payload: memoryview,
        remote_va: int,
        rkey: int,
        immediate: int | None = None,
    ) -> None:
        self.memory.place(rkey, remote_va, payload)
        self.posted.append((wr_id, remote_va, rkey, len(payload)))
        if immediate is not None:
            self.immediates.append(immediate)

    def complete(self, status: CompletionStatus = CompletionStatus.SUCCESS) -> Completion:
        number, self.done = self.done, self.done + 1
        return Completion(number, status, number, self.posted[number][3])


@pytest.fixture
def setup() -> tuple[_Wire, Sender, Checker]:
    """A sender, the wire, and the checker at its other end."""
    slots = Slots(SIZE, DEPTH)
    region = slots.region(FLOW)
    memory = MemoryTable()
    memory.register(region)
    wire = _Wire(memory)
    sender = Sender(wire, FLOW, slots, Pattern(Block(1, SIZE), FLOW))
    return wire, sender, Checker(FLOW, region, Pattern(Block(1, SIZE), FLOW))


def test_what_completes_is_counted(setup: tuple[_Wire, Sender, Checker]) -> None:
    wire, sender, _ = setup
    assert sender.idle
    sender.post(SIZE)
    sender.post(SIZE - 1)
    assert sender.complete(wire.complete())
    assert (sender.counts.bytes_sent, sender.counts.bytes_completed) == (2 * SIZE - 1, SIZE)
    assert not sender.idle
    assert sender.complete(wire.complete())
    assert sender.idle


def test_no_slot_is_used_that_is_not_free(setup: tuple[_Wire, Sender, Checker]) -> None:
    wire, sender, _ = setup
    with pytest.raises(ValueError, match="no slot"):
        sender.post(SIZE + 1)
    for _ in range(DEPTH):
        sender.post(SIZE)
    with pytest.raises(ValueError, match="no slot"):
        sender.post(SIZE)
    sender.complete(wire.complete())
    sender.post(SIZE)


def test_a_message_has_the_immediate_that_it_was_given(
    setup: tuple[_Wire, Sender, Checker],
) -> None:
    wire, sender, _ = setup
    sender.post(SIZE)
    sender.post(SIZE, immediate=7)
    assert (len(wire.posted), wire.immediates) == (2, [7])


def test_slots_are_used_in_turn_and_one_does_not_reach_into_the_next(
    setup: tuple[_Wire, Sender, Checker],
) -> None:
    wire, sender, _ = setup
    for _ in range(2 * DEPTH):
        sender.post(SIZE)
        sender.complete(wire.complete())
    addresses = [va for _, va, _, _ in wire.posted]
    assert addresses[:DEPTH] == addresses[DEPTH:]
    assert sorted(addresses[:DEPTH]) == [addresses[0] + i * SIZE for i in range(DEPTH)]
    assert {rkey for _, _, rkey, _ in wire.posted} == {rkey_of(FLOW)}


def test_every_message_is_verified_until_one_is_damaged(
    setup: tuple[_Wire, Sender, Checker],
) -> None:
    wire, sender, checker = setup
    for number in range(10):
        sender.post(SIZE)
        _, va, rkey, length = wire.posted[number]
        delivered = MessageDelivered(number, va, rkey, length, 0)
        if number < 9:
            assert checker.check(delivered)
        else:
            wire.memory.place(rkey, va + 17, b"\0\0\0\0")
            assert not checker.check(delivered)
        sender.complete(wire.complete())
    assert (checker.counts.bytes_verified, checker.counts.bytes_corrupted) == (9 * SIZE, SIZE)


@pytest.mark.parametrize(("from_bytes", "more_bytes"), [(0, 5), (-5, 0), (-DEPTH * SIZE, 0)])
def test_a_message_that_its_region_does_not_hold_is_not_verified(
    setup: tuple[_Wire, Sender, Checker], from_bytes: int, more_bytes: int
) -> None:
    """Whatever stands in the part of it that does."""
    wire, sender, checker = setup
    for _ in range(DEPTH):
        sender.post(SIZE)
    number = DEPTH - 1 if more_bytes else 0
    _, va, rkey, length = wire.posted[number]
    delivered = MessageDelivered(number, va + from_bytes, rkey, length + more_bytes, 0)
    assert not checker.check(delivered)
    assert (checker.counts.bytes_verified, checker.counts.bytes_corrupted) == (0, SIZE + more_bytes)


def test_an_overwritten_slot_is_noticed(setup: tuple[_Wire, Sender, Checker]) -> None:
    """A message that the ring's next round has written over."""
    wire, sender, checker = setup
    for _ in range(DEPTH + 1):
        sender.post(SIZE)
        sender.complete(wire.complete())
    _, va, rkey, length = wire.posted[0]
    assert not checker.check(MessageDelivered(0, va, rkey, length, 0))


def test_an_error_is_kept_and_is_no_arrival(setup: tuple[_Wire, Sender, Checker]) -> None:
    wire, sender, _ = setup
    sender.post(SIZE)
    assert not sender.complete(wire.complete(CompletionStatus.RETRY_EXCEEDED))
    assert sender.counts.errors == [CompletionStatus.RETRY_EXCEEDED.value]
    assert sender.counts.bytes_completed == 0


@pytest.mark.parametrize(
    ("kept", "verified"),
    [
        ((0, 1, 2), True),
        ((2, 0, 1), True),
        ((0, 2), False),
        ((0, 1), False),
        ((), False),
    ],
)
def test_payloads_kept_uncopied_are_verified_in_their_places(
    kept: tuple[int, ...], verified: bool
) -> None:
    pattern, third = Pattern(Block(1, SIZE), FLOW), SIZE // 4
    region = Slots(SIZE, 2).region(FLOW, copied=False)
    assert isinstance(region, PayloadRegion)
    memory = MemoryTable()
    memory.register(region)
    content = pattern.message(0, 3 * third)
    for part in kept:
        start = part * third
        memory.place(region.rkey, region.va + start, content[start : start + third])
    checker = Checker(FLOW, region, pattern)
    assert checker.check(MessageDelivered(0, region.va, region.rkey, 3 * third, 0)) is verified
    assert not verified or not region.payloads, "nothing is kept of a verified message"


def test_a_damaged_payload_that_was_kept_is_noticed() -> None:
    pattern = Pattern(Block(1, SIZE), FLOW)
    region = Slots(SIZE, 2).region(FLOW, copied=False)
    memory = MemoryTable()
    memory.register(region)
    damaged = bytearray(pattern.message(0, SIZE))
    damaged[SIZE // 2] ^= 1
    memory.place(region.rkey, region.va, damaged)
    assert not Checker(FLOW, region, pattern).check(
        MessageDelivered(0, region.va, region.rkey, SIZE, 0)
    )
