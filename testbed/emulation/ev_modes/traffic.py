"""WRITEs from one host to the other, over devices that this process drives both."""

import random
from typing import Final

from testbed.emulation.endpoint.device import Device
from testbed.model.errors import RunFailedError
from testbed.mrc import CompletionStatus, QueuePair
from testbed.mrc.verbs import CompletionQueue, VerbsQp, WcOpcode

MESSAGE_BYTES: Final = 1 << 16
_IN_FLIGHT: Final = 8
_SLOTS: Final = 4 * _IN_FLIGHT
"""Each message is written to the next of these; it is checked long before the slot's turn comes."""

_SHIFTS: Final = 4093
"""Each message begins at another byte of the same random content; a prime, so that no two messages
near each other, and no two slots, have the same."""

_STEP_S: Final = 0.001


class Traffic:
    """A queue pair that is kept busy, and the memory that it writes to.

    Attributes:
        completed: the WRITEs that completed at the sender.
        checked: the messages that arrived, each compared with what was sent.
    """

    def __init__(self, here: Device, there: Device) -> None:
        """Connect a queue pair of `here` to one of `there`."""
        self._here, self._there = here, there
        self._cqs = here.context.create_cq(), there.context.create_cq()
        self._qp, self._peer = self._queue_pairs(*self._cqs)
        self._region = there.context.reg_mr(bytearray(_SLOTS * MESSAGE_BYTES))
        chooser = random.Random("content")  # noqa: S311 - repeatable
        self._content = memoryview(chooser.randbytes(MESSAGE_BYTES + _SHIFTS))
        self._posted = self.completed = self.checked = 0
        for number in range(_SLOTS):
            self._peer.post_recv(number)

    def _queue_pairs(
        self, here: CompletionQueue, there: CompletionQueue
    ) -> tuple[VerbsQp, VerbsQp]:
        qp = self._here.context.create_qp(here)
        peer = self._there.context.create_qp(there)
        qp.connect(peer.local)
        peer.connect(qp.local)
        return qp, peer

    @property
    def core(self) -> QueuePair:
        """The sender's queue pair in the protocol core."""
        core = self._qp.core
        if core is None:
            raise RunFailedError("the queue pair is not connected")
        return core

    def work(self, *, busy: bool) -> None:
        """One round of both hosts; `busy` keeps WRITEs in flight.

        Raises:
            RunFailedError: a WRITE failed, or something else arrived than was sent.
        """
        while busy and self._posted - self.completed < _IN_FLIGHT:
            number, self._posted = self._posted, self._posted + 1
            va = self._region.va + number % _SLOTS * MESSAGE_BYTES
            self._qp.post_write_imm(number, self._message(number), va, self._region.rkey, number)
        self._there.poll()
        self._here.run(lambda: False, timeout_s=_STEP_S)
        for entry in self._cqs[0].poll():
            if entry.status is not CompletionStatus.SUCCESS:
                raise RunFailedError(f"a WRITE ended with: {entry.status.value}")
            self.completed += 1
        for entry in self._cqs[1].poll():
            if entry.opcode is WcOpcode.RECV_RDMA_WITH_IMM:
                self._check()
                self._peer.post_recv(entry.wr_id)

    @property
    def idle(self) -> bool:
        """Whether all that was posted has completed, and was checked."""
        return self.completed == self.checked == self._posted

    def _message(self, number: int) -> memoryview:
        start = number % _SHIFTS
        return self._content[start : start + MESSAGE_BYTES]

    def _check(self) -> None:
        number, self.checked = self.checked, self.checked + 1
        start = number % _SLOTS * MESSAGE_BYTES
        if self._region.buffer[start : start + MESSAGE_BYTES] != self._message(number):
            raise RunFailedError(f"message {number}: what arrived is not what was sent")
