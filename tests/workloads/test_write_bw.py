"""WRITEs back to back: never more outstanding than asked for, each checked where it lands."""

from dataclasses import dataclass, field
from typing import cast

import pytest

from testbed.mrc import Completion, CompletionStatus, MemoryTable, MessageDelivered, QueuePair
from testbed.workloads.pattern import Pattern
from testbed.workloads.write_bw import Checker, Sender, Slots, rkey_of

SIZE, DEPTH, FLOW = 1000, 4, 2


@dataclass
class _Wire:
    """A queue pair that places what is posted in the peer's memory at once."""

    memory: MemoryTable
    posted: list[tuple[int, int, int, int]] = field(default_factory=list)
    done: list[Completion] = field(default_factory=list)
    seen: int = 0

    def post_write(self, wr_id: int, payload: memoryview, va: int, rkey: int) -> None:
        self.memory.place(rkey, va, payload)
        self.posted.append((wr_id, va, rkey, len(payload)))

    def complete(self, status: CompletionStatus = CompletionStatus.SUCCESS) -> None:
        number = len(self.done)
        self.done.append(Completion(number, status, number, self.posted[number][3]))

    def poll_cq(self) -> list[Completion]:
        new, self.seen = self.done[self.seen :], len(self.done)
        return new


@pytest.fixture
def setup() -> tuple[_Wire, Sender, Checker]:
    """A sender, the wire, and the checker at its other end."""
    slots = Slots(SIZE, DEPTH)
    region = slots.region(FLOW)
    memory = MemoryTable()
    memory.register(region)
    wire = _Wire(memory)
    sender = Sender(cast("QueuePair", wire), FLOW, slots, Pattern(FLOW, 1, SIZE))
    return wire, sender, Checker(FLOW, region, Pattern(FLOW, 1, SIZE))


def test_depth_writes_are_outstanding(setup: tuple[_Wire, Sender, Checker]) -> None:
    wire, sender, _ = setup
    sender.fill(SIZE)
    sender.fill(SIZE)
    assert len(wire.posted) == DEPTH
    wire.complete()
    sender.reap()
    sender.fill(SIZE)
    assert len(wire.posted) == DEPTH + 1
    assert (sender.bytes_posted, sender.bytes_completed) == ((DEPTH + 1) * SIZE, SIZE)
    assert not sender.idle


def test_slots_are_used_in_turn_and_one_does_not_reach_into_the_next(
    setup: tuple[_Wire, Sender, Checker],
) -> None:
    wire, sender, _ = setup
    for _ in range(2 * DEPTH):
        sender.post(SIZE)
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
    assert (checker.bytes_verified, checker.bytes_corrupted) == (9 * SIZE, SIZE)


def test_an_overwritten_slot_is_noticed(setup: tuple[_Wire, Sender, Checker]) -> None:
    """A message that the ring's next round has written over."""
    wire, sender, checker = setup
    for _ in range(DEPTH + 1):
        sender.post(SIZE)
    _, va, rkey, length = wire.posted[0]
    assert not checker.check(MessageDelivered(0, va, rkey, length, 0))


def test_after_an_error_nothing_more_is_posted(setup: tuple[_Wire, Sender, Checker]) -> None:
    wire, sender, _ = setup
    sender.fill(SIZE)
    wire.complete(CompletionStatus.RETRY_EXCEEDED)
    sender.reap()
    sender.fill(SIZE)
    assert len(wire.posted) == DEPTH
    assert sender.failed == [CompletionStatus.RETRY_EXCEEDED.value]
    assert sender.bytes_completed == 0
