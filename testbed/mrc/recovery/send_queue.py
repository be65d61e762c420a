"""The send queue of a queue pair: WRITEs as posted, cut into packets, completed in order."""

from collections import deque
from typing import Final

from testbed.mrc.message import Completion, CompletionStatus, Message, Payload

_RELEASED: Final = memoryview(b"")


class SendQueue:
    """The messages that have not been acknowledged whole, oldest first.

    Attributes:
        failed: whether the queue pair has failed, so that WRITEs are flushed when they are posted.
    """

    def __init__(self, mtu: int, max_immediates: int | None = None) -> None:
        """Begin empty.

        Args:
            mtu: payload bytes of a packet, at most.
            max_immediates: how many WRITEs with immediate may be begun and not completed.
        """
        self._mtu = mtu
        self._max_immediates = max_immediates
        self._uncut: deque[Message] = deque()
        self._begun: deque[Message] = deque()
        self._posted = 0
        self._immediates = self._immediates_posted = 0
        self._completions: list[Completion] = []
        self.failed = False

    def post(self, wr_id: int, payload: Payload, va: int, rkey: int, immediate: int | None) -> None:
        """Queue a WRITE, or flush it after a failure."""
        message = Message(
            self._posted, wr_id, payload, va, rkey, immediate, self._immediates_posted
        )
        self._posted += 1
        self._immediates_posted += immediate is not None
        if self.failed:
            self._complete(message, CompletionStatus.FLUSHED)
        else:
            self._uncut.append(message)

    @property
    def has_more(self) -> bool:
        """Whether a message has bytes that have not been put into packets."""
        return bool(self._uncut)

    def next_length(self) -> int | None:
        """Return the payload bytes of the next packet; None if no new packet may be sent."""
        if not self._uncut:
            return None
        message = self._uncut[0]
        if (
            self._max_immediates is not None
            and message.immediate is not None
            and message.offset == 0
            and self._immediates >= self._max_immediates
        ):
            return None
        return min(self._mtu, message.length - message.offset)

    def cut(self, seq: int) -> tuple[Message, int, int]:
        """Cut the next packet, number `seq`: return its message, its offset there, its length."""
        message = self._uncut[0]
        offset = message.offset
        length = min(self._mtu, message.length - offset)
        if offset == 0:
            message.first_seq = seq
            self._begun.append(message)
            self._immediates += message.immediate is not None
        message.offset = offset + length
        if message.offset == message.length:
            message.last_seq = seq
            self._uncut.popleft()
        return message, offset, length

    def arrived(self, oldest_seq: int) -> Message | None:
        """Return the newest message whose packets are all older than `oldest_seq`, if any."""
        newest: Message | None = None
        for message in self._begun:
            if not -1 < message.last_seq < oldest_seq:
                break
            newest = message
        return newest

    def containing(self, seq: int) -> Message | None:
        """Return the message that packet `seq` belongs to, unless it has completed."""
        for message in self._begun:
            if message.first_seq <= seq and (message.last_seq < 0 or seq <= message.last_seq):
                return message
        return None

    def acknowledged(self, oldest_seq: int) -> None:
        """Complete the messages whose packets are all older than `oldest_seq`."""
        begun = self._begun
        while begun and -1 < begun[0].last_seq < oldest_seq:
            message = begun.popleft()
            self._immediates -= message.immediate is not None
            self._complete(message, CompletionStatus.SUCCESS)

    def fail(self, status: CompletionStatus, culprit: Message | None = None) -> None:
        """Fail: `culprit`, else the oldest message, completes with `status`; others are flushed."""
        self.failed = True
        unbegun = (message for message in self._uncut if message.offset == 0)
        for message in (*self._begun, *unbegun):
            if culprit is None:
                culprit = message
            self._complete(message, status if message is culprit else CompletionStatus.FLUSHED)
        self._begun.clear()
        self._uncut.clear()

    def take_completions(self) -> list[Completion]:
        """Return the completions since the last call, in the order of posting."""
        completions, self._completions = self._completions, []
        return completions

    def _complete(self, message: Message, status: CompletionStatus) -> None:
        message.payload = _RELEASED
        self._completions.append(Completion(message.wr_id, status, message.number, message.length))
