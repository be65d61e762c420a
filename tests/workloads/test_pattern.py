"""Content that tells every message from every other, wherever it lands."""

import pytest

from testbed.host.workloads.messages import Block, Pattern

LONGEST = 8192


def test_both_ends_make_the_same_bytes() -> None:
    sender, receiver = (Pattern(Block(7, LONGEST), 3) for _ in range(2))
    for number in (0, 1, 1000):
        assert receiver.matches(number, memoryview(bytes(sender.message(number, LONGEST))))


@pytest.mark.parametrize(("flow", "seed"), [(4, 7), (3, 8)])
def test_another_flow_or_seed_differs(flow: int, seed: int) -> None:
    pattern, other = Pattern(Block(7, LONGEST), 3), Pattern(Block(seed, LONGEST), flow)
    assert not pattern.matches(0, other.message(0, LONGEST))


def test_an_earlier_message_is_not_taken_for_this_one() -> None:
    pattern = Pattern(Block(1, LONGEST), 0)
    for number in range(1, 200):
        assert not pattern.matches(number, pattern.message(number - 1, 64))


def test_one_wrong_byte_is_noticed() -> None:
    pattern = Pattern(Block(1, LONGEST), 0)
    received = bytearray(pattern.message(5, LONGEST))
    received[4711] ^= 1
    assert not pattern.matches(5, memoryview(received))


def test_packets_that_changed_places_are_noticed() -> None:
    pattern = Pattern(Block(1, LONGEST), 0)
    message = bytes(pattern.message(2, LONGEST))
    assert not pattern.matches(2, memoryview(message[4096:] + message[:4096]))
