"""The send queue on its own: cutting, the bound on immediates, completing in order, failing."""

from testbed.mrc import Completion, CompletionStatus
from testbed.mrc.recovery.send_queue import SendQueue

MTU = 100


def post(queue: SendQueue, *lengths: int, immediate: int | None = None) -> None:
    for length in lengths:
        queue.post(7, memoryview(bytes(length)), 0x1000, 1, immediate)


def cut_all(queue: SendQueue, first_seq: int = 0) -> list[tuple[int, int, int]]:
    """Cut until nothing may be: message number, offset, length of each packet."""
    packets: list[tuple[int, int, int]] = []
    while queue.next_length() is not None:
        length = queue.next_length()
        message, offset, cut = queue.cut(first_seq + len(packets))
        assert cut == length
        packets.append((message.number, offset, cut))
    return packets


def ended(completions: list[Completion]) -> list[tuple[int, CompletionStatus]]:
    return [(completion.message, completion.status) for completion in completions]


def test_messages_are_cut_in_order_into_full_packets_and_a_rest() -> None:
    queue = SendQueue(MTU)
    assert not queue.has_more
    post(queue, 250, 0, 100)
    assert queue.has_more
    assert cut_all(queue) == [(0, 0, 100), (0, 100, 100), (0, 200, 50), (1, 0, 0), (2, 0, 100)]
    assert not queue.has_more


def test_a_message_completes_when_its_last_packet_is_acknowledged() -> None:
    queue = SendQueue(MTU)
    post(queue, 250, 100)
    cut_all(queue, first_seq=10)
    queue.acknowledged(12)
    assert queue.take_completions() == []
    queue.acknowledged(13)
    assert queue.take_completions() == [Completion(7, CompletionStatus.SUCCESS, 0, 250)]
    queue.acknowledged(14)
    assert ended(queue.take_completions()) == [(1, CompletionStatus.SUCCESS)]
    assert queue.take_completions() == []


def test_a_message_that_is_not_cut_to_its_end_does_not_complete() -> None:
    queue = SendQueue(MTU)
    post(queue, 250)
    queue.cut(0)
    queue.acknowledged(1)
    assert queue.take_completions() == []


def test_a_write_with_immediate_waits_until_another_has_completed() -> None:
    queue = SendQueue(MTU, max_immediates=1)
    post(queue, 150, 150, immediate=1)
    assert cut_all(queue) == [(0, 0, 100), (0, 100, 50)]
    assert queue.has_more
    queue.acknowledged(2)
    assert cut_all(queue, first_seq=2) == [(1, 0, 100), (1, 100, 50)]


def test_the_message_that_failed_bears_the_status_wherever_it_stands() -> None:
    for failed in range(2):
        queue = SendQueue(MTU)
        post(queue, 100, 250, 100)
        begun = [queue.cut(0)[0], queue.cut(1)[0]]
        queue.fail(CompletionStatus.REMOTE_ACCESS_ERROR, begun[failed])
        statuses = [CompletionStatus.FLUSHED] * 3
        statuses[failed] = CompletionStatus.REMOTE_ACCESS_ERROR
        assert ended(queue.take_completions()) == list(enumerate(statuses))


def test_a_failure_is_the_oldest_messages_and_flushes_the_others_once_each() -> None:
    queue = SendQueue(MTU)
    post(queue, 100, 250, 100)
    queue.cut(0)
    queue.cut(1)  # the second message is begun and has more
    queue.fail(CompletionStatus.RETRY_EXCEEDED)
    post(queue, 100)
    assert ended(queue.take_completions()) == [
        (0, CompletionStatus.RETRY_EXCEEDED),
        (1, CompletionStatus.FLUSHED),
        (2, CompletionStatus.FLUSHED),
        (3, CompletionStatus.FLUSHED),
    ]
    assert not queue.has_more
    assert queue.next_length() is None
