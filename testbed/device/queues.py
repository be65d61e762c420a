"""Completion queues and queue pairs of programs: between shared memory and the protocol core."""

import errno
import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from testbed.device.ocp import MrcAttributes, QpProfiles
from testbed.device.process_memory import (
    ForbiddenPayload,
    Memory,
    ProcessPayload,
    ProcessRegion,
)
from testbed.device.protocol import (
    COOKIE,
    CQE,
    EVENT,
    MAX_INLINE,
    MAX_SGE,
    RECEIVE,
    SEND_INLINE,
    SEND_SIGNALED,
    SGE,
    STATUSES,
    WC_RDMA_WRITE,
    WC_RECV_RDMA_WITH_IMM,
    WC_WITH_IMM,
    WQE,
    WQE_BYTES,
    WR_WRITE_WITH_IMM,
    IbvEvent,
    IbvStatus,
)
from testbed.device.rings import CompletionRing, PostedRing, ProgramError, fence
from testbed.model.closeable import Closeable
from testbed.mrc import MemoryTable, QpState
from testbed.mrc.message import Payload
from testbed.mrc.qp import QpStateError
from testbed.mrc.verbs import VerbsQp, WcOpcode, WorkCompletion

_STATUS: Final = {status: IbvStatus(number) for number, status in STATUSES.items()}


class EventPipe(Closeable):
    """A pipe of events to a program, which reads the other end."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)

    def passed(self) -> None:
        """Close the program's end here: it has its own."""
        os.close(self.reader)
        self.reader = -1

    def send(self, event: bytes) -> None:
        """Send an event; a program that has left thousands of them unread loses it."""
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._writer, event)

    def close(self) -> None:
        """Close this end: the program reads the end of the file."""
        if self.reader >= 0:
            self.passed()
        os.close(self._writer)


class ProtectionDomain:
    """What queue pairs may reach.

    Attributes:
        table: what the peer may write to.
        regions: what is registered, by key; work requests may read all of it.
        users: the objects that belong to it.
    """

    def __init__(self) -> None:
        self.table = MemoryTable()
        self.regions: dict[int, ProcessRegion] = {}
        self.users = 0


class Channel(EventPipe):
    """A completion channel.

    Attributes:
        users: its completion queues.
    """

    def __init__(self) -> None:
        super().__init__()
        self.users = 0


class ProgramCq(Closeable):
    """A completion queue in memory that a program polls.

    Attributes:
        cookie: how events name it.
        users: the queue pairs that report to it; each counts as often as it does.
        overrun: whether a completion was lost because the program did not poll.
    """

    def __init__(self, depth: int, cookie: int, channel: Channel | None, events: EventPipe) -> None:
        self.ring = CompletionRing("mrc-cq", depth, CQE.size)
        self.cookie = cookie
        self.channel = channel
        self.users = 0
        self.overrun = False
        self._events = events
        self._announced = 0
        self._solicited = False

    def push(self, *entry: int, solicited: bool) -> None:
        """Report a completion; where there is no room for it, the queue fails.

        Args:
            entry: its fields.
            solicited: whether it makes an event for those who want only such.
        """
        if self.overrun:
            return
        self._solicited |= solicited
        if not self.ring.push(*entry):
            self.overrun = True
            self._events.send(event(self.cookie, IbvEvent.CQ_ERR))

    def announce(self) -> None:
        """Make the event that the program has asked for, if something has completed since."""
        if self.channel is None or self._announced == self.ring.count:
            return
        self._announced = self.ring.count
        solicited, self._solicited = self._solicited, False
        fence()  # a program arms first and looks then; this end completes first and looks then
        if self.ring.disarm(solicited=solicited):
            self.channel.send(COOKIE.pack(self.cookie))

    def tell(self) -> None:
        """Make the event that the program has asked for: what it waits for is not in the ring."""
        fence()
        if self.channel is not None and self.ring.disarm(solicited=True):
            self.channel.send(COOKIE.pack(self.cookie))

    def resize(self, depth: int) -> None:
        """Move to a ring of another depth.

        Raises:
            OSError: it does not hold the completions that wait, or there is no memory.
        """
        new = self.ring.resized("mrc-cq", depth)
        if new is None:
            raise OSError(errno.EINVAL, f"more completions wait than {depth}")
        self.ring.close()
        self.ring = new

    def close(self) -> None:
        """Give up the memory."""
        self.ring.close()


def event(cookie: int, kind: IbvEvent, port: int = 0) -> bytes:
    """An asynchronous event as the library reads it: of a queue, or of a port, from 1 on."""
    return EVENT.pack(cookie, kind, port)


@dataclass(slots=True)
class Sent:
    """What a program has sent: completed WRITEs.

    Attributes:
        size: bytes.
        first_ns: when it posted the first.
        last_ns: when the last completed.
    """

    size: int = 0
    first_ns: int = 0
    last_ns: int = 0


class ProgramQp(Closeable):
    """A queue pair whose work requests and completions are in memory that a program shares.

    Attributes:
        verbs: the queue pair.
        pd: its protection domain.
        remote_write: whether the peer may write.
        mrc: what mrc.h has set.
        profiles: its profiles of EVs and congestion control.
    """

    remote_write = False
    mrc = MrcAttributes()

    def __init__(
        self,
        verbs: VerbsQp,
        pd: ProtectionDomain,
        cqs: tuple[ProgramCq, ProgramCq],
        depths: tuple[int, int],
        *,
        profiles: QpProfiles,
        cookie: int,
        signal_all: bool,
        memory: Memory,
        events: EventPipe,
        sent: Sent,
    ) -> None:
        """Make the rings of a queue pair.

        Args:
            verbs: the queue pair.
            pd: its protection domain.
            cqs: where its WRITEs and its receives are reported.
            depths: entries of its send queue and its receive queue.
            profiles: its profiles.
            cookie: how events name it.
            signal_all: whether every work request is reported, not those only that ask for it.
            memory: the program's.
            events: to the program.
            sent: where to count what has been sent.
        """
        self.verbs = verbs
        self.pd = pd
        self.profiles = profiles
        self._cookie = cookie
        self.send_cq, self.recv_cq = cqs
        self.sends = PostedRing("mrc-sends", depths[0], WQE_BYTES)
        try:
            self.receives = PostedRing("mrc-receives", depths[1], RECEIVE.size)
        except OSError:
            self.sends.close()
            raise
        self._signal_all = signal_all
        self._memory = memory
        self._events = events
        self._sent = sent
        self._posted: deque[tuple[int, bool]] = deque()
        self._told = False

    @property
    def cqs(self) -> tuple[ProgramCq, ProgramCq]:
        """Where it reports."""
        return self.send_cq, self.recv_cq

    def take_posted(self, now_ns: int) -> bool:
        """Hand new work requests to the protocol core; returns whether there were any.

        Raises:
            ProgramError: an entry is one that no library writes.
        """
        receives, sends = self.receives.take(), self.sends.take()
        for offset in receives:
            (wr_id,) = RECEIVE.unpack_from(self.receives.memory, offset)
            self._post_receive(wr_id)
        if receives and self._is_dead:
            self._flush_receives()
        if sends and not self._sent.first_ns:
            self._sent.first_ns = now_ns
        for offset in sends:
            self._post_send(offset)
        return bool(receives or sends)

    def _post_receive(self, wr_id: int) -> None:
        try:
            self.verbs.post_recv(wr_id)
        except QpStateError as error:
            raise ProgramError(str(error)) from error

    def _post_send(self, offset: int) -> None:
        memory = self.sends.memory
        wr_id, va, key, immediate, opcode, flags, count, _ = WQE.unpack_from(memory, offset)
        payload = self._payload(offset + WQE.size, flags, count)
        self._posted.append((wr_id, self._signal_all or bool(flags & SEND_SIGNALED)))
        number = len(self._posted)
        try:
            if self._is_dead:
                self._completed(IbvStatus.WR_FLUSH_ERR, 0)
            elif opcode == WR_WRITE_WITH_IMM:
                self.verbs.post_write_imm(number, payload, va, key, immediate)
            else:
                self.verbs.post_write(number, payload, va, key)
        except QpStateError as error:
            raise ProgramError(str(error)) from error
        except ValueError:  # it ends beyond the address space
            self.verbs.post_write(number, ForbiddenPayload(1), 0, key)

    def _payload(self, start: int, flags: int, count: int) -> Payload:
        memory = self.sends.memory
        if flags & SEND_INLINE:
            if count > MAX_INLINE:
                raise ProgramError(f"{count} inline bytes")
            return memoryview(memory[start : start + count])
        if count > MAX_SGE:
            raise ProgramError(f"{count} pieces of a message")
        places, total, allowed = list[tuple[int, int]](), 0, True
        for i in range(count):
            address, size, key = SGE.unpack_from(memory, start + i * SGE.size)
            total += size
            region = self.pd.regions.get(key)
            place = None if region is None else region.place(address, size)
            if place is None:
                allowed = allowed and not size
            elif size:
                places.append(place)
        return ProcessPayload(self._memory, places) if allowed else ForbiddenPayload(total)

    def deliver(self, now_ns: int) -> None:
        """Report what has completed, and what went wrong at this end."""
        for done in self.verbs.take_completions():
            self._report(done, now_ns)
        core = self.verbs.core
        if core is not None and not self._told:
            counters = core.counters
            if counters.unknown_rkey or counters.out_of_bounds:
                self._tell(IbvEvent.QP_ACCESS_ERR)
            elif counters.invalid_request or counters.no_receive:
                self._tell(IbvEvent.QP_REQ_ERR)
        overrun = self.send_cq.overrun or self.recv_cq.overrun
        if overrun and core is not None and self.verbs.state is not QpState.ERROR:
            self.verbs.modify(QpState.ERROR)
            self._tell(IbvEvent.QP_FATAL)

    def _tell(self, kind: IbvEvent) -> None:
        self._told = True
        self._events.send(event(self._cookie, kind))

    def _report(self, done: WorkCompletion, now_ns: int) -> None:
        status = _STATUS[done.status]
        if done.opcode is WcOpcode.RDMA_WRITE:
            self._completed(status, done.byte_len)
            if status is IbvStatus.SUCCESS:
                self._sent.size += done.byte_len
                self._sent.last_ns = now_ns
            return
        self.receives.ended()
        immediate = done.imm_data
        self.recv_cq.push(
            done.wr_id,
            status,
            WC_RECV_RDMA_WITH_IMM,
            done.byte_len,
            immediate or 0,
            self.verbs.qp_num,
            0 if immediate is None else WC_WITH_IMM,
            solicited=True,
        )

    def _completed(self, status: IbvStatus, size: int) -> None:
        """End the oldest WRITE; without a signal only errors are reported."""
        wr_id, signalled = self._posted.popleft()
        self.sends.ended()
        if signalled or status is not IbvStatus.SUCCESS:
            number = self.verbs.qp_num
            failed = status is not IbvStatus.SUCCESS
            self.send_cq.push(wr_id, status, WC_RDMA_WRITE, size, 0, number, 0, solicited=failed)

    def changed(self, state: QpState) -> None:
        """Act on a new state: RESET forgets what is posted, ERROR before RTR flushes it."""
        if state is QpState.RESET:
            self._posted.clear()
            self.sends.forget()
            self.receives.forget()
            self._told = False
        elif self._is_dead:
            self._flush_receives()

    @property
    def _is_dead(self) -> bool:
        """Whether it is in ERROR and never learnt its peer: nothing else flushes what is posted."""
        return self.verbs.core is None and self.verbs.state is QpState.ERROR

    def _flush_receives(self) -> None:
        flushed, number = IbvStatus.WR_FLUSH_ERR, self.verbs.qp_num
        for wr_id in self.verbs.take_receives():
            self.receives.ended()
            entry = wr_id, flushed, WC_RECV_RDMA_WITH_IMM, 0, 0, number, 0
            self.recv_cq.push(*entry, solicited=True)

    def close(self) -> None:
        """Give up the memory."""
        self.sends.close()
        self.receives.close()
