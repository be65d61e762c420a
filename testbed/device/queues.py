"""Completion queues and queue pairs of programs: between shared memory and the protocol core.

The NIC process makes the memory, and seals its size: a program that shrank it would end the NIC.
What a program writes there is checked like everything else that comes from outside.
"""

import errno
import fcntl
import mmap
import os
import platform
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from testbed.device.abi import MrcAttributes, QpProfiles
from testbed.device.process_memory import ForbiddenPayload, Memory, ProcessPayload, ProcessRegion
from testbed.device.protocol import (
    ARMED,
    ARMED_SOLICITED,
    COOKIE,
    CQE,
    DONE,
    ENTRIES_OFFSET,
    EVENT,
    HEAD,
    MAX_INLINE,
    MAX_SGE,
    RECEIVE,
    RING_BYTES,
    SEND_INLINE,
    SEND_SIGNALED,
    SGE,
    STATUSES,
    TAIL,
    WC_RDMA_WRITE,
    WC_RECV_RDMA_WITH_IMM,
    WC_WITH_IMM,
    WQE,
    WQE_BYTES,
    WR_WRITE_WITH_IMM,
    IbvEvent,
    IbvStatus,
)
from testbed.model.closeable import Closeable
from testbed.mrc import MemoryTable, QpState
from testbed.mrc.message import Payload
from testbed.mrc.qp import QpStateError
from testbed.mrc.verbs import VerbsQp, WcOpcode, WorkCompletion

_COUNTS: Final = (1 << 32) - 1
_ORDERED: Final = platform.machine() in {"x86_64", "AMD64", "i686"}
"""Whether other processors see this one's writes in the order in which it makes them."""

_BARRIER: Final = threading.Lock()


def fence() -> None:
    """Have other processors see what was written before anything is read or written after.

    Python has no fence; the release of a lock and the acquisition after it make one.
    """
    with _BARRIER:
        pass
    with _BARRIER:
        pass


class ProgramError(Exception):
    """A program has written to a ring what no library writes: it is disconnected."""


class Ring(Closeable):
    """A ring, with the descriptor of its memory until that has been passed to the program."""

    def __init__(self, name: str, depth: int, entry_bytes: int) -> None:
        """Make the memory.

        Args:
            name: for /proc.
            depth: entries, a power of two.
            entry_bytes: the size of one.
        """
        self.depth = depth
        self._entry_bytes = entry_bytes
        size = ENTRIES_OFFSET + depth * entry_bytes
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
            self.memory = mmap.mmap(self.fd, size)
        except OSError:
            os.close(self.fd)
            raise
        self.words = memoryview(self.memory)[:RING_BYTES].cast("I")
        self._count = 0  # entries that this end has put in, or taken out

    def passed(self) -> None:
        """Close the descriptor: the program has its own."""
        os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        """Give up the memory; the program's mapping stays."""
        if self.fd >= 0:
            self.passed()
        self.words.release()
        self.memory.close()

    def _offset(self, count: int) -> int:
        return ENTRIES_OFFSET + count % self.depth * self._entry_bytes


class PostedRing(Ring):
    """A ring that the program fills with work requests."""

    _done = 0

    def take(self) -> list[int]:
        """Take the entries that are new; returns where in `memory` each begins.

        They stay valid until `ended` has counted them.

        Raises:
            ProgramError: there are more than the ring has room for.
        """
        tail, first = self.words[TAIL], self._count
        count = (tail - first) & _COUNTS
        if not count:
            return []
        outstanding = (tail - self._done) & _COUNTS
        if outstanding > self.depth:
            raise ProgramError(f"{outstanding} entries in a ring of {self.depth}")
        self._count = tail
        self.words[HEAD] = tail
        fence()  # the next look at the tail sees what the program put in before it saw this head
        return [self._offset((first + i) & _COUNTS) for i in range(count)]

    def ended(self, count: int = 1) -> None:
        """Note that work requests have ended: the program may reuse their entries."""
        self._done = (self._done + count) & _COUNTS
        self.words[DONE] = self._done

    def forget(self) -> None:
        """Drop everything in it: the queue pair is reset."""
        self._count = self._done = tail = self.words[TAIL]
        self.words[HEAD] = self.words[DONE] = tail


class CompletionRing(Ring):
    """A ring that the NIC fills with completions."""

    def push(self, *entry: int) -> bool:
        """Put in a completion; returns whether there was room."""
        count = self._count
        if (count - self.words[HEAD]) & _COUNTS >= self.depth:
            return False
        CQE.pack_into(self.memory, self._offset(count), *entry)
        if not _ORDERED:
            fence()
        self._count = (count + 1) & _COUNTS
        self.words[TAIL] = self._count
        return True

    def resized(self, name: str, depth: int) -> "CompletionRing | None":
        """Return a ring of another depth with what waits here; None if it has no room for that."""
        waiting = (self._count - self.words[HEAD]) & _COUNTS
        if waiting > min(depth, self.depth):
            return None
        new = CompletionRing(name, depth, self._entry_bytes)
        new.words[HEAD], new.words[ARMED] = self.words[HEAD], self.words[ARMED]
        for i in range(waiting):
            count = (self._count - waiting + i) & _COUNTS
            old_start, new_start = self._offset(count), new._offset(count)
            entry = self.memory[old_start : old_start + self._entry_bytes]
            new.memory[new_start : new_start + self._entry_bytes] = entry
        new._count = new.words[TAIL] = self._count
        return new

    @property
    def count(self) -> int:
        """How many completions have been put in, modulo 2^32."""
        return self._count

    def disarm(self, *, solicited: bool) -> bool:
        """Return whether the program wants an event now; it wants none any more then.

        Args:
            solicited: whether a receive or an error is among what has completed.
        """
        armed = self.words[ARMED]
        if not armed or (armed == ARMED_SOLICITED and not solicited):
            return False
        self.words[ARMED] = 0
        return True


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
