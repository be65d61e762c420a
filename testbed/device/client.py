"""A Python program's way to the NIC of its host: the library that programs in C load, by ctypes.

The queue pairs themselves are in the NIC process, which all programs of the host share, and which
works whatever they do (docs/rdma.md).
"""

import ctypes
import errno
import os
import secrets
import select
import socket
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import POINTER, addressof, byref, c_char, c_int, c_size_t, c_uint8, c_uint32, c_void_p
from functools import partial
from typing import Any, Final

from testbed.device.abi import (
    Ah,
    Cap,
    Gid,
    Mr,
    MrcAttributes,
    MrcQpInit,
    QpAttr,
    RecvWr,
    Route,
    SendWr,
    Sge,
    Wc,
)
from testbed.device.compiling import PRELOAD
from testbed.device.library import IN_HOSTS
from testbed.device.protocol import (
    MAX_CQE,
    MAX_DEPTH,
    MAX_INLINE,
    MAX_MESSAGE,
    MTUS,
    REPLY,
    SEND_INLINE,
    STATES,
    STATUSES,
    WC_RECV_RDMA_WITH_IMM,
    WC_WITH_IMM,
    WR_WRITE_WITH_IMM,
    IbvAccess,
    IbvMask,
    Reply,
)
from testbed.model.closeable import Closeable
from testbed.model.errors import ExitStatus, MachineError, TestbedError
from testbed.model.fabric.nodes import Node, Tier
from testbed.mrc.constants import MAX_EXPONENTIAL_RETRIES, MAX_LINEAR_RETRIES
from testbed.mrc.qp import QpState, QpStateError
from testbed.mrc.verbs import Destination, QpAttributes, WcOpcode, WorkCompletion

_ROUND_S: Final = 0.01
_BATCH: Final = 64
_DEFAULT: Final = QpAttributes()

_DEVICE_ATTR_BYTES: Final = 512
_GUID: Final = slice(64, 72)
"""The place of the GUID in struct ibv_device_attr; it has the number of the host, from 1 on."""

_MAX_24_BITS: Final = (1 << 24) - 1
_MAX_PROFILE: Final = (1 << 64) - 1

_MRC_MASK: Final = 0b11_0110_1111
"""enum mrc_qp_attr_mask: all but timeout and hint."""

_CHANGED: Final = {
    QpState.INIT: IbvMask.ACCESS_FLAGS,
    QpState.RTR: IbvMask.AV | IbvMask.PATH_MTU | IbvMask.DEST_QPN | IbvMask.RQ_PSN,
    QpState.RTS: IbvMask.SQ_PSN,
}


class _Library:
    """The functions of the library; what they refuse is an exception.

    Device, queue pairs and completion queues all have it. What it keeps is destroyed when the last
    of them is gone: no thread is in a call then.
    """

    def __init__(self) -> None:
        self._functions = _functions()
        self._kept: list[tuple[str, c_void_p]] = []
        unused = weakref.finalize(self, _destroy, self._functions, self._kept, os.getpid())
        unused.atexit = False  # the process ends, and with it all that it has

    def keep(self, made: c_void_p, destroyed_by: str) -> c_void_p:
        """Keep an object that this function destroys; returns the object."""
        self._kept.append((destroyed_by, made))
        return made

    def destroy(self, made: c_void_p, destroyed_by: str) -> None:
        """Destroy an object that is kept."""
        self.call(destroyed_by, made)
        self._kept.remove((destroyed_by, made))

    def make(self, name: str, *arguments: Any, kind: Any = c_void_p) -> Any:
        """Call a function that returns an object."""
        function = getattr(self._functions, name)
        function.restype = kind
        made = function(*arguments)
        if not made:
            raise _failure(name, ctypes.get_errno())
        return c_void_p(made) if kind is c_void_p else made

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns 0, or an errno, or -1 and sets it."""
        error = getattr(self._functions, name)(*arguments)
        if error:
            raise _failure(name, ctypes.get_errno() if error < 0 else error)

    def poll(self, cq: c_void_p, most: int, entries: Any) -> int:
        """Take completions; their number, or -1 where there are none and the NIC has ended."""
        count: int = self._functions.mrc_poll_cq(cq, most, entries)
        return count

    def take_event(self, channel: c_void_p) -> None:
        """Take an event of a channel that does not block, unless another thread has taken it."""
        cq, cookie = c_void_p(), c_void_p()
        with suppress(BlockingIOError):
            self.call("mrc_get_cq_event", channel, byref(cq), byref(cookie))
            self._functions.mrc_ack_cq_events(cq, 1)

    def open_device(self) -> c_void_p:
        """Open mrc0, which is listed before the machine's own devices."""
        devices = self.make("ibv_get_device_list", None, kind=POINTER(c_void_p))
        first = c_void_p(devices[0])
        name = first and self.make("ibv_get_device_name", first, kind=ctypes.c_char_p)
        try:
            if name == b"mrc0":
                return c_void_p(self.make("ibv_open_device", first).value)
        finally:
            self._functions.ibv_free_device_list(devices)
        raise _not_in_a_host()


def _functions() -> ctypes.CDLL:
    for name in (PRELOAD, str(IN_HOSTS / PRELOAD)):
        with suppress(OSError):
            functions = ctypes.CDLL(name, use_errno=True)
            if hasattr(functions, "mrc0_report"):  # it is ours
                return functions
    raise _not_in_a_host()


def _destroy(functions: ctypes.CDLL, kept: list[tuple[str, c_void_p]], owner: int) -> None:
    """Destroy objects, the newest first; a child of fork() has none."""
    while kept and os.getpid() == owner:
        destroyed_by, made = kept.pop()
        getattr(functions, destroyed_by)(made)


def _not_in_a_host() -> MachineError:
    return MachineError(
        "this program does not run in a host of a fabric",
        "testbed shell, and at its prompt: h0 python PROGRAM; or testbed device -- python PROGRAM",
    )


def _failure(what: str, number: int) -> OSError:
    if number == errno.EIO:
        return ConnectionError("the NIC of this host has ended, or the device is closed")
    return OSError(number, f"{what}: {os.strerror(number)}")


def _require_fit(name: str, value: int, most: int, least: int = 0) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name}: found {value}, expected {least} to {most}")


class MemoryRegion:
    """Registered memory; `Device.reg_mr` makes it.

    Attributes:
        va: where it begins, as the peer names it.
        rkey: what the peer needs to write to it.
        buffer: its bytes.
    """

    def __init__(self, register: Callable[..., Any], buffer: memoryview) -> None:
        """Register a buffer, which stays where it is."""
        self.buffer = buffer
        self._pinned = (c_char * len(buffer)).from_buffer(buffer)
        self.va = addressof(self._pinned)
        access = int(IbvAccess.LOCAL_WRITE | IbvAccess.REMOTE_WRITE)
        self.handle = register(c_void_p(self.va), c_size_t(len(buffer)), access, kind=POINTER(Mr))
        self.rkey: int = self.handle.contents.rkey


class CompletionQueue:
    """Where queue pairs report what has completed; `Device.create_cq` makes it."""

    def __init__(self, library: _Library, handle: c_void_p) -> None:
        """Wrap a completion queue of the library."""
        self.handle = handle
        self._library = library

    def poll(self, limit: int | None = None) -> list[WorkCompletion]:
        """Remove and return at most `limit` entries, oldest first; in order for each queue pair.

        Raises:
            ConnectionError: the NIC process has ended.
        """
        taken: list[WorkCompletion] = []
        entries = (Wc * _BATCH)()  # of this call: other threads may poll, too
        count = most = _BATCH
        while count == most and (limit is None or len(taken) < limit):
            most = _BATCH if limit is None else min(_BATCH, limit - len(taken))
            count = self._library.poll(self.handle, most, entries)
            if count < 0 and not taken:
                raise _failure("mrc_poll_cq", errno.EIO)
            taken += [_completion(entry) for entry in entries[: max(count, 0)]]
        return taken


def _completion(entry: Wc) -> WorkCompletion:
    received = entry.opcode == WC_RECV_RDMA_WITH_IMM
    return WorkCompletion(
        entry.wr_id,
        STATUSES[entry.status],
        WcOpcode.RECV_RDMA_WITH_IMM if received else WcOpcode.RDMA_WRITE,
        entry.byte_len,
        socket.ntohl(entry.imm_data) if entry.wc_flags & WC_WITH_IMM else None,
        entry.qp_num,
    )


class ClientQp:
    """One end of a reliable connection; `Device.create_qp` makes it, in INIT.

    Attributes:
        local: this end of the connection, as the peer must know it.
    """

    def __init__(
        self,
        device: "Device",
        handle: c_void_p,
        attributes: QpAttributes,
        profiles: tuple[int, int],
    ) -> None:
        """Wrap a queue pair of the library, and take it to INIT."""
        number = c_uint32()
        device.library.call("mrc_get_qpn", handle, byref(number))
        psn = secrets.randbelow(1 << 24)
        self.local = Destination(device.address, number.value, psn, attributes.capabilities)
        self._device = device
        self._handle: c_void_p | None = handle
        self._attributes = attributes
        self._profiles = profiles
        self.modify(QpState.INIT)

    @property
    def qp_num(self) -> int:
        """The QP number, which packets to it carry."""
        return self.local.qpn

    @property
    def handle(self) -> c_void_p:
        """The object of the library.

        Raises:
            QpStateError: it is destroyed.
        """
        if self._handle is None:
            raise QpStateError("the queue pair is destroyed")
        return self._handle

    @property
    def state(self) -> QpState:
        """The state; ERROR as soon as the transport has given up."""
        attr = QpAttr()
        self._device.library.call("mrc_query_qp", self.handle, byref(attr), 1, None, 0, None)
        return STATES[attr.qp_state]

    def modify(self, state: QpState, destination: Destination | None = None) -> None:
        """Change the state; RTR needs the peer's end of the connection, other states take none.

        ERROR flushes what is posted, RESET forgets everything.

        Raises:
            QpStateError: no such transition.
            ValueError: the destination is missing, or belongs to no such state, or is not in the
                fabric, or a number of it does not fit its field.
        """
        if (state is QpState.RTR) != (destination is not None):
            raise ValueError("a destination belongs to RTR, and to no other state")
        attr = QpAttr(qp_access_flags=IbvAccess.REMOTE_WRITE, sq_psn=self.local.psn)
        attr.qp_state = next(number for number, known in STATES.items() if known is state)
        mask, mrc = IbvMask.STATE | _CHANGED.get(state, IbvMask(0)), b""
        if destination is not None:
            _require_fit("qpn", destination.qpn, _MAX_24_BITS)
            _require_fit("psn", destination.psn, _MAX_24_BITS)
            attr.ah_attr = _way(destination.address)
            own = self._attributes
            limits = own.peer_capabilities or destination.capabilities
            attr.path_mtu = MTUS.index(own.mtu or MTUS[-1]) + 1
            attr.dest_qp_num, attr.rq_psn = destination.qpn, destination.psn
            retries = own.linear_retries, own.exponential_retries
            mrc = MrcAttributes(own.capabilities, limits, *retries, *self._profiles).pack()
        modify = partial(self._device.library.call, "mrc_modify_qp", self.handle, byref(attr))
        try:
            modify(int(mask), mrc or None, _MRC_MASK if mrc else 0)
        except OSError as error:
            if error.errno == errno.EHOSTUNREACH:
                raise ValueError(f"no NIC of the fabric has the address {destination}") from error
            if error.errno == errno.EINVAL:
                raise QpStateError(
                    f"a queue pair in {self.state} with {self._attributes} and the profiles "
                    f"{self._profiles} cannot become {state}"
                ) from error
            raise

    def connect(self, destination: Destination) -> None:
        """Go from INIT to RTS.

        Raises:
            QpStateError: it is not in INIT.
            ValueError: the destination is not in the fabric.
        """
        self.modify(QpState.RTR, destination)
        self.modify(QpState.RTS)

    def post_write(
        self,
        wr_id: int,
        payload: bytes | bytearray | memoryview,
        remote_va: int,
        rkey: int,
        immediate: int | None = None,
    ) -> None:
        """Post an RDMA WRITE.

        Args:
            wr_id: comes back in the completion; 64 bits.
            payload: bytes; more than 256 are a part of the `buffer` of a region, and left alone
                until the WRITE has completed.
            remote_va: where they go.
            rkey: of the peer's region.
            immediate: 32 bits, for a WRITE with immediate: it completes at the peer, too.

        Raises:
            ValueError: the payload is in no region, or not in one piece, or a number does not fit
                its field.
            QpStateError: the QP is not in RTS.
            BlockingIOError: the send queue is full.
            ConnectionError: the NIC process has ended.
        """
        view = memoryview(payload)
        if not view.c_contiguous:
            raise ValueError("a payload is in one piece")
        data = view.cast("B")
        for name, value, bits in (
            ("wr_id", wr_id, 64),
            ("remote_va", remote_va, 64),
            ("rkey", rkey, 32),
            ("immediate", immediate or 0, 32),
        ):
            _require_fit(name, value, (1 << bits) - 1)
        _require_fit("the size of a message", len(data), MAX_MESSAGE)
        is_inline = len(data) <= MAX_INLINE  # the library copies it at once
        if is_inline:
            copy = (c_char * len(data)).from_buffer_copy(data)
            sge = Sge(addressof(copy), len(data), 0)
        else:
            sge = self._device.place(data)
        request = SendWr(
            wr_id=wr_id,
            sg_list=ctypes.pointer(sge),
            num_sge=1,
            opcode=0 if immediate is None else WR_WRITE_WITH_IMM,
            send_flags=SEND_INLINE if is_inline else 0,
            imm_data=socket.htonl(immediate or 0),
            remote_addr=remote_va,
            rkey=rkey,
        )
        self._post("send", request)

    def post_write_imm(
        self,
        wr_id: int,
        payload: bytes | bytearray | memoryview,
        remote_va: int,
        rkey: int,
        immediate: int,
    ) -> None:
        """Post an RDMA WRITE with immediate: `post_write`."""
        self.post_write(wr_id, payload, remote_va, rkey, immediate)

    def post_recv(self, wr_id: int) -> None:
        """Post a receive: a WRITE with immediate of the peer consumes one, oldest first.

        It has no buffer, as the WRITE says where its bytes go. Post receives before `connect`: MRC
        has no RNR, so a WRITE with immediate that finds none fails, and the peer's queue pair too.

        Raises:
            ValueError: `wr_id` has more than 64 bits.
            BlockingIOError: the receive queue is full.
            ConnectionError: the NIC process has ended.
        """
        _require_fit("wr_id", wr_id, (1 << 64) - 1)
        self._post("recv", RecvWr(wr_id=wr_id))

    def _post(self, queue: str, request: SendWr | RecvWr) -> None:
        try:
            self._device.library.call(
                f"mrc_post_{queue}", self.handle, byref(request), byref(c_void_p())
            )
        except OSError as error:
            if error.errno == errno.ENOMEM:
                words = f"the {queue} queue is full: take completions, or create_qp(depth=...)"
                raise BlockingIOError(errno.EAGAIN, words) from error
            if error.errno == errno.EINVAL:
                words = f"nothing can be posted to a queue pair in {self.state}"
                raise QpStateError(words) from error
            raise

    def destroy(self) -> None:
        """Forget it and what it has posted."""
        self._device.library.destroy(self.handle, "mrc_destroy_qp")
        self._handle = None


def _way(address: bytes) -> Ah:
    if len(address) != ctypes.sizeof(Gid):
        raise ValueError(f"address: found {len(address)} bytes, expected {ctypes.sizeof(Gid)}")
    gid = Gid((c_uint8 * 16).from_buffer_copy(address))
    return Ah(grh=Route(dgid=gid), is_global=1, port_num=1)


class Device(Closeable):
    """The NIC of this host, opened by a program. Use it as a context manager.

    Attributes:
        host: the host.
        address: of the NIC, in 16 bytes.
    """

    def __init__(self) -> None:
        """Open it; see `open_device`."""
        self.library = library = _Library()
        self._verbs = library.keep(library.open_device(), "ibv_close_device")
        made = library.make("mrc_create_context", self._verbs, None)
        self._mrc = library.keep(made, "mrc_destroy_context")
        self._pd = library.keep(library.make("ibv_alloc_pd", self._verbs), "ibv_dealloc_pd")
        self._channel, descriptor = c_void_p(), c_int()
        library.call("mrc_create_comp_channel", self._mrc, byref(self._channel))
        library.keep(self._channel, "mrc_destroy_comp_channel")
        library.call("mrc_get_comp_channel_fd", self._channel, byref(descriptor))
        self._events = descriptor.value
        os.set_blocking(self._events, False)
        gid, attributes = Gid(), (c_uint8 * _DEVICE_ATTR_BYTES)()
        library.call("ibv_query_gid", self._verbs, c_uint8(1), 0, byref(gid))
        library.call("ibv_query_device", self._verbs, attributes)
        self.address = bytes(gid.raw)
        guid = int.from_bytes(bytes(attributes[_GUID]), sys.byteorder)
        self.host = Node(Tier.HOST, 0, (guid & 0xFFFF_FFFF) - 1)
        self._cqs: list[CompletionQueue] = []
        self._regions: list[MemoryRegion] = []
        self._owner = os.getpid()
        self._out_of_reach = weakref.finalize(
            self, _deregister, library, self._regions, self._owner
        )

    def close(self) -> None:
        """Let go of everything. What it has sent is shown on standard error."""
        if self._out_of_reach.alive:
            self._out_of_reach()
            if os.getpid() == self._owner:  # a child of fork() has no device
                self.library.destroy(self._verbs, "ibv_close_device")

    def reg_mr(self, buffer: bytearray | memoryview) -> MemoryRegion:
        """Register memory: peers may WRITE to it by the region's `va` and `rkey`.

        Raises:
            ValueError: the buffer is read-only, empty, or not in one piece.
        """
        view = memoryview(buffer)
        if view.readonly or not view.nbytes or not view.c_contiguous:
            raise ValueError("a memory region needs a writable buffer of bytes, in one piece")
        region = MemoryRegion(partial(self.library.make, "ibv_reg_mr", self._pd), view.cast("B"))
        self._regions.append(region)
        return region

    def dereg_mr(self, region: MemoryRegion) -> None:
        """Take a region out of the peers' reach: a WRITE to it is a remote access error.

        Raises:
            ValueError: it is not registered.
        """
        if region not in self._regions:
            raise ValueError("the region is not registered with this device")
        self._regions.remove(region)
        self.library.call("ibv_dereg_mr", region.handle)

    def place(self, data: memoryview) -> Sge:
        """Where a message is, and the key of its region.

        Raises:
            ValueError: it is in none.
            ConnectionError: the device is closed.
        """
        if not self._out_of_reach.alive:
            raise _failure("post_write", errno.EIO)
        start = -1 if data.readonly else addressof(c_char.from_buffer(data))
        for region in [*self._regions]:  # other threads may change them
            if region.va <= start and start + len(data) <= region.va + len(region.buffer):
                return Sge(start, len(data), region.handle.contents.lkey)
        raise ValueError(
            f"payload: found {len(data)} bytes in no region, expected at most {MAX_INLINE}, or a "
            "part of the buffer of one: device.reg_mr(bytearray(...)).buffer[:size]"
        )

    def create_cq(self, entries: int = MAX_CQE) -> CompletionQueue:
        """Make a completion queue; any number of queue pairs may share it.

        Args:
            entries: what it holds; if more wait, its queue pairs fail.

        Raises:
            ValueError: it cannot hold so many.
            OSError: the NIC has no more of them.
        """
        _require_fit("entries", entries, MAX_CQE, 1)
        made = self.library.make("mrc_create_cq", self._mrc, entries, None, self._channel, 0)
        cq = CompletionQueue(self.library, self.library.keep(made, "mrc_destroy_cq"))
        self._cqs.append(cq)
        return cq

    def create_qp(
        self,
        cq: CompletionQueue,
        *,
        depth: int = 1024,
        ev_profile: int = 0,
        cc_profile: int = 0,
        attributes: QpAttributes = _DEFAULT,
    ) -> ClientQp:
        """Make a queue pair, in INIT.

        Args:
            cq: where it reports completions.
            depth: WRITEs, and receives, that may be posted at once: up to 16,384.
            ev_profile: the number of its EV profile, which a controller has made (mrc_ctl.h);
                0: the NIC chooses the EVs.
            cc_profile: that of congestion control; 0: the NIC's parameters of NSCC.
            attributes: capabilities, retries and MTU.

        Raises:
            ValueError: a number is out of its range, or the completion queue is another device's.
            OSError: the NIC has no more of them.
        """
        if cq not in self._cqs:
            raise ValueError("the completion queue is another device's")
        for name, value, most, least in (
            ("depth", depth, MAX_DEPTH, 1),
            ("ev_profile", ev_profile, _MAX_PROFILE, 0),
            ("cc_profile", cc_profile, _MAX_PROFILE, 0),
            ("linear_retries", attributes.linear_retries, MAX_LINEAR_RETRIES, 0),
            ("exponential_retries", attributes.exponential_retries, MAX_EXPONENTIAL_RETRIES, 0),
        ):
            _require_fit(name, value, most, least)
        if attributes.mtu not in (None, *MTUS):
            raise ValueError(f"mtu: found {attributes.mtu}, expected one of {MTUS}")
        cap = Cap(depth, depth, 1, 1, MAX_INLINE)
        init = MrcQpInit(None, cq.handle, cq.handle, cap, 1, self._pd, 0b11, 1)
        made = self.library.make("mrc_create_qp", self._mrc, byref(init))
        handle = self.library.keep(made, "mrc_destroy_qp")
        return ClientQp(self, handle, attributes, (ev_profile, cc_profile))

    def lateness(self) -> tuple[int, int]:
        """How many packets this NIC has seen late since programs use it, and how many in all."""
        data = (c_char * REPLY.size)()
        self.library.call("mrc0_report", self._verbs, data)
        reply = Reply._make(REPLY.unpack(data.raw))
        return reply.handle, reply.key

    def run(
        self, until: Callable[[], bool], *, timeout_s: float | None = None, wake: int | None = None
    ) -> bool:
        """Wait until `until` returns true, or for `timeout_s`; returns its last answer.

        Args:
            until: called when something has completed, and a hundred times a second; it may post.
            timeout_s: seconds; no limit if None.
            wake: a descriptor that ends the sleep as soon as it is readable.

        Raises:
            ConnectionError: the NIC process has ended.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        watched = select.poll()
        for descriptor in (self._events, wake):
            if descriptor is not None:
                watched.register(descriptor, select.POLLIN)
        while True:
            for cq in self._cqs:
                self.library.call("mrc_req_notify_cq", cq.handle, 0)
            if until():
                return True
            left_s = _ROUND_S if end is None else min(_ROUND_S, end - time.monotonic())
            if left_s <= 0:
                return False
            ready = watched.poll(left_s * 1000)
            if any(descriptor == self._events for descriptor, _ in ready):
                self.library.take_event(self._channel)

    def wait(self, cq: CompletionQueue, timeout_s: float | None = None) -> list[WorkCompletion]:
        """Wait until a completion queue has entries and take them.

        Args:
            cq: the completion queue.
            timeout_s: seconds; no limit if None. 1 GiB at 40 Mbit/s takes almost 4 minutes.

        Raises:
            TimeoutError: it stayed empty for `timeout_s` seconds.
            ConnectionError: the NIC process has ended.
        """
        completions: list[WorkCompletion] = []

        def has_entries() -> bool:
            completions.extend(cq.poll())
            return bool(completions)

        if not self.run(has_entries, timeout_s=timeout_s):
            raise TimeoutError(f"no completion within {timeout_s:g} s")
        return completions


def _deregister(library: _Library, regions: list[MemoryRegion], owner: int) -> None:
    """Take memory out of the peers' reach before it is freed: the NIC knows nothing of that.

    When a device is closed, forgotten, or left open at the end of the program. A child of fork()
    has the memory, but not the NIC.
    """
    while regions and os.getpid() == owner:
        library.call("ibv_dereg_mr", regions[-1].handle)
        regions.pop()


def open_device() -> Device:
    """Open the NIC of the host that this program runs in, such as `testbed shell`'s `h0 python`.

    Raises:
        MachineError: it does not run in a host of a fabric.
    """
    return Device()


@contextmanager
def plain_errors() -> Iterator[None]:
    """End the program with a message instead of a traceback where its user can act on an error.

    Such as a server's name that no host has, or a peer that has ended. The exit status is that of
    the error; 1 if the peer or the NIC has ended or did not answer.

    Raises:
        SystemExit: there was such an error; its message is printed.
    """
    try:
        yield
    except TestbedError as error:
        message, status = str(error), int(error.exit_status)
    except (ConnectionError, TimeoutError) as error:
        message, status = str(error), int(ExitStatus.FAILED)
    except MemoryError:
        message, status = "there is not enough memory", int(ExitStatus.MACHINE_CANNOT)
    else:
        return
    sys.stderr.write(f"error: {message}\n")
    raise SystemExit(status)
