"""The backend "mrc" of torch.distributed: collectives of a training job over MRC.

    import torch_mrc
    torch.distributed.init_process_group("mrc")

This module needs torch and the device mrc0 of a host, and nothing else of the testbed: it runs in
the Python that has torch. docs/torch.md has what works and in which order numbers are added.

Each two ranks of a group share a queue pair. A message has up to `SLOT_BYTES` and goes by one WRITE
with immediate into a slot of the receiver's memory; the receiver empties slots at once and returns
them as credits. One thread of the process does all that. Operations are generators: they yield the
rank whose next message they need, so any number of them proceed at the same time.

Every message says to which operation it belongs and what its sender calls. If two ranks disagree,
all ranks of the group get the error. A collective ends on no rank before all ranks agree, apart
from all_to_all, which compares pairs.
"""

import ctypes
import functools
import inspect
import json
import mmap
import os
import select
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from ctypes import (
    POINTER,
    PYFUNCTYPE,
    Structure,
    byref,
    c_int,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from datetime import timedelta
from typing import Any, ClassVar, Final

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

SLOT_BYTES: Final = 32 * 1024
"""A message with its header: eight packets. Sums of so few elements start no threads in torch."""
SLOTS: Final = 32
"""Messages on the way to a peer: 1 MiB, several bandwidth-delay products. MRC allows 64."""
TREE_BYTES: Final = 128 * 1024
"""Below this size all_reduce takes the tree: fewer steps, but the root sends all of it."""

_HEADER_BYTES: Final = 64
_HEADER: Final = struct.Struct("=iiQ BBBxiQ I")
"""Key: sender (or -1), tag, number. Call: kind, type, reduction, root, elements. Bytes after it."""
_HEADER_SIZE: Final = struct.Struct("=I")
_KEY_BYTES, _CALL_END = 16, 32
_PAYLOAD_BYTES: Final = SLOT_BYTES - _HEADER_BYTES
_CREDIT: Final = 0xFFFF_FFFF
"""The immediate of a message that returns `_CREDITS` slots; of one in a slot it is 0."""
_CREDITS: Final = SLOTS // 4
_RECEIVES: Final = SLOTS + 2 * (SLOTS // _CREDITS)
_TICK_S: Final = 1.0
"""After this time without a message the peer's NIC is asked whether the peer is there."""
_SILENCE_S: Final = 20.0
"""A rank whose NIC has not answered for so long is lost; the queue pair would try for minutes."""
_GOODBYE_S: Final = 5.0

_DTYPES: Final = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip
_REDUCTIONS: Final[dict[str, Any]] = {
    "": None,
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
_KINDS: Final = (
    "error", "goodbye", "all_reduce", "reduce", "broadcast", "barrier", "all_gather",
    "reduce_scatter", "gather", "scatter", "all_to_all", "send and recv",
)  # fmt: skip
_ROOTED: Final = ("reduce", "broadcast", "gather", "scatter")

_Steps = Generator[int, Any, None]


class MrcError(RuntimeError):
    """An operation has failed, with all others of its group."""


# --- verbs ----------------------------------------------------------------------------------------

_Fields = list[tuple[str, Any]]


class _Object(Structure):
    """The beginning of ibv_pd and ibv_mr."""

    _fields_: ClassVar[_Fields] = [("context", c_void_p), ("pd", c_void_p)]


class _Mr(Structure):
    _fields_: ClassVar[_Fields] = [
        ("context", c_void_p), ("pd", c_void_p), ("addr", c_void_p), ("length", c_size_t),
        ("handle", c_uint32), ("lkey", c_uint32), ("rkey", c_uint32),
    ]  # fmt: skip


class _Channel(Structure):
    _fields_: ClassVar[_Fields] = [("context", c_void_p), ("fd", c_int)]


class _Cap(Structure):
    _fields_: ClassVar[_Fields] = [
        ("max_send_wr", c_uint32), ("max_recv_wr", c_uint32), ("max_send_sge", c_uint32),
        ("max_recv_sge", c_uint32), ("max_inline_data", c_uint32),
    ]  # fmt: skip


class _QpInit(Structure):
    _fields_: ClassVar[_Fields] = [
        ("qp_context", c_void_p), ("send_cq", c_void_p), ("recv_cq", c_void_p), ("srq", c_void_p),
        ("cap", _Cap), ("qp_type", c_int), ("sq_sig_all", c_int),
    ]  # fmt: skip


class _Gid(Structure):
    _fields_: ClassVar[_Fields] = [("raw", c_uint8 * 16), ("_align", c_uint64 * 0)]


class _Ah(Structure):
    _fields_: ClassVar[_Fields] = [
        ("dgid", _Gid), ("flow_label", c_uint32), ("sgid_index", c_uint8), ("hop_limit", c_uint8),
        ("traffic_class", c_uint8), ("_grh_end", c_uint64 * 0), ("dlid", c_uint16), ("sl", c_uint8),
        ("src_path_bits", c_uint8), ("static_rate", c_uint8), ("is_global", c_uint8),
        ("port_num", c_uint8), ("_end", c_uint64 * 0),
    ]  # fmt: skip


class _QpAttr(Structure):
    _fields_: ClassVar[_Fields] = [
        ("qp_state", c_int), ("cur_qp_state", c_int), ("path_mtu", c_int),
        ("path_mig_state", c_int), ("qkey", c_uint32), ("rq_psn", c_uint32), ("sq_psn", c_uint32),
        ("dest_qp_num", c_uint32), ("qp_access_flags", c_uint), ("cap", _Cap), ("ah_attr", _Ah),
        ("alt_ah_attr", _Ah), ("pkey_index", c_uint16), ("alt_pkey_index", c_uint16),
        ("en_sqd_async_notify", c_uint8), ("sq_draining", c_uint8), ("max_rd_atomic", c_uint8),
        ("max_dest_rd_atomic", c_uint8), ("min_rnr_timer", c_uint8), ("port_num", c_uint8),
        ("timeout", c_uint8), ("retry_cnt", c_uint8), ("rnr_retry", c_uint8),
        ("alt_port_num", c_uint8), ("alt_timeout", c_uint8), ("rate_limit", c_uint32),
    ]  # fmt: skip


class _Qp(Structure):
    _fields_: ClassVar[_Fields] = [
        ("context", c_void_p), ("qp_context", c_void_p), ("pd", c_void_p), ("send_cq", c_void_p),
        ("recv_cq", c_void_p), ("srq", c_void_p), ("handle", c_uint32), ("qp_num", c_uint32),
    ]  # fmt: skip


class _Sge(Structure):
    _fields_: ClassVar[_Fields] = [("addr", c_uint64), ("length", c_uint32), ("lkey", c_uint32)]


class _SendWr(Structure):
    _fields_: ClassVar[_Fields] = [
        ("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(_Sge)), ("num_sge", c_int),
        ("opcode", c_int), ("send_flags", c_uint), ("imm_data", c_uint32),
        ("remote_addr", c_uint64), ("rkey", c_uint32), ("_rest", c_uint8 * 76),
    ]  # fmt: skip


class _RecvWr(Structure):
    _fields_: ClassVar[_Fields] = [
        ("wr_id", c_uint64), ("next", c_void_p), ("sg_list", c_void_p), ("num_sge", c_int),
    ]  # fmt: skip


class _Wc(Structure):
    _fields_: ClassVar[_Fields] = [
        ("wr_id", c_uint64), ("status", c_int), ("opcode", c_int), ("vendor_err", c_uint32),
        ("byte_len", c_uint32), ("imm_data", c_uint32), ("qp_num", c_uint32), ("src_qp", c_uint32),
        ("wc_flags", c_uint), ("pkey_index", c_uint16), ("slid", c_uint16), ("sl", c_uint8),
        ("dlid_path_bits", c_uint8),
    ]  # fmt: skip


class _Context(Structure):
    """The beginning of ibv_context, with the functions that its header calls inline."""

    _fields_: ClassVar[_Fields] = [
        ("device", c_void_p), ("_1", c_void_p * 11),
        ("poll_cq", PYFUNCTYPE(c_int, c_void_p, c_int, POINTER(_Wc))),
        ("req_notify_cq", PYFUNCTYPE(c_int, c_void_p, c_int)), ("_2", c_void_p * 12),
        ("post_send", PYFUNCTYPE(c_int, c_void_p, POINTER(_SendWr), POINTER(c_void_p))),
        ("post_recv", PYFUNCTYPE(c_int, c_void_p, POINTER(_RecvWr), POINTER(c_void_p))),
    ]  # fmt: skip


_ACCESS: Final = 3  # IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
_RC, _INIT, _RTR, _RTS, _MTU_4096 = 2, 1, 2, 3, 5
_INIT_MASK: Final = 0x39  # STATE, ACCESS_FLAGS, PKEY_INDEX, PORT
_RTR_MASK: Final = 0x0012_9181  # STATE, AV, PATH_MTU, RQ_PSN, MIN_RNR_TIMER, MAX_DEST_RD, DEST_QPN
_RTS_MASK: Final = 0x0001_2E01  # STATE, TIMEOUT, RETRY_CNT, RNR_RETRY, MAX_QP_RD, SQ_PSN
_WRITE, _WRITE_IMM, _SIGNALED = 0, 1, 2
_RECEIVED: Final = 129  # IBV_WC_RECV_RDMA_WITH_IMM
_ENTRIES: Final = 1 << 14
_BATCH: Final = 64


class _Nic:
    """The device mrc0, opened: its memory, its completion queue and its queue pairs."""

    def __init__(self) -> None:
        self.functions = ctypes.CDLL(None, use_errno=True)
        self.context = self._open()
        context = self.context.contents
        # These do not block, so they keep the interpreter's lock.
        self.poll_cq, self.req_notify = context.poll_cq, context.req_notify_cq
        self.post_send, self.post_recv = context.post_send, context.post_recv
        self.pd = self.make("alloc_pd", _Object, self.context)
        self.channel = self.make("create_comp_channel", _Channel, self.context)
        self.cq = self.make("create_cq", _Object, self.context, _ENTRIES, None, self.channel, 0)
        gid = _Gid()
        self.call("query_gid", self.context, 1, 0, byref(gid))
        self.gid = bytes(gid.raw)
        self._entries = (_Wc * _BATCH)()

    def _open(self) -> Any:
        try:
            list_devices = self.functions.ibv_get_device_list
        except AttributeError:
            raise MrcError(
                "no MRC device here. Start the program in a host of `testbed shell`: h0 PROGRAM"
            ) from None
        list_devices.restype = POINTER(c_void_p)
        self.functions.ibv_get_device_name.restype = ctypes.c_char_p
        count = c_int()
        devices = list_devices(byref(count))
        try:
            for device in map(c_void_p, devices[: count.value]):
                if self.functions.ibv_get_device_name(device) == b"mrc0":
                    return self.make("open_device", _Context, device)
        finally:
            self.functions.ibv_free_device_list(devices)
        raise MrcError("no device mrc0. Start the program in a host of `testbed shell`: h0 PROGRAM")

    def make(self, name: str, kind: type[Structure], *arguments: Any) -> Any:
        """Call a function that returns an object."""
        function = getattr(self.functions, f"ibv_{name}")
        function.restype = POINTER(kind)
        made = function(*arguments)
        if not made:
            raise MrcError(f"ibv_{name}: {os.strerror(ctypes.get_errno())}")
        return made

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns 0, or an errno."""
        error = getattr(self.functions, f"ibv_{name}")(*arguments)
        if error:
            raise MrcError(f"ibv_{name}: {os.strerror(abs(error))}")

    def create_qp(self) -> Any:
        """Make a queue pair with its receives posted, ready for `connect`."""
        depth = 4 * SLOTS
        init = _QpInit(
            send_cq=ctypes.cast(self.cq, c_void_p),
            recv_cq=ctypes.cast(self.cq, c_void_p),
            cap=_Cap(depth, depth, 1, 1, 0),
            qp_type=_RC,
        )
        qp = self.make("create_qp", _Qp, self.pd, byref(init))
        self._modify(qp, _INIT_MASK, qp_state=_INIT, port_num=1, qp_access_flags=_ACCESS)
        self.receive(qp, _RECEIVES)
        return qp

    def connect(self, qp: Any, gid: bytes, number: int) -> None:
        """Take a queue pair to RTS."""
        way = _Ah(dgid=_Gid((c_uint8 * 16).from_buffer_copy(gid)), is_global=1, port_num=1)
        self._modify(
            qp, _RTR_MASK, qp_state=_RTR, path_mtu=_MTU_4096, dest_qp_num=number, ah_attr=way
        )
        self._modify(qp, _RTS_MASK, qp_state=_RTS, timeout=14, retry_cnt=7)

    def _modify(self, qp: Any, mask: int, **fields: Any) -> None:
        self.call("modify_qp", qp, byref(_QpAttr(**fields)), mask)

    def receive(self, qp: Any, count: int) -> None:
        """Post receives."""
        bad = c_void_p()
        error = self.post_recv(qp, _receives(count), byref(bad))
        if error:
            raise MrcError(f"ibv_post_recv: {os.strerror(error)}")

    def send(self, qp: Any, request: _SendWr) -> None:
        """Post a WRITE."""
        bad = c_void_p()
        error = self.post_send(qp, byref(request), byref(bad))
        if error:
            raise MrcError(f"ibv_post_send: {os.strerror(error)}")

    def take_event(self) -> None:
        """Take the event of the completion channel, and ask for the next one."""
        cq, cookie = c_void_p(), c_void_p()
        if self.functions.ibv_get_cq_event(self.channel, byref(cq), byref(cookie)):
            raise MrcError("the NIC of this host has ended")
        self.functions.ibv_ack_cq_events(cq, 1)
        self.req_notify(self.cq, 0)

    def completions(self) -> Iterator[_Wc]:
        """What has completed. An empty poll would sleep, so none is made after a short one."""
        count = _BATCH
        while count == _BATCH:
            count = self.poll_cq(self.cq, _BATCH, self._entries)
            if count < 0:
                raise MrcError("the NIC of this host has ended")
            yield from self._entries[:count]


@functools.cache
def _receives(count: int) -> Any:
    """A chain of receives; they have no buffers."""
    chain = (_RecvWr * count)()
    for i in range(count - 1):
        chain[i].next = ctypes.addressof(chain[i + 1])
    return chain


# --- one group ------------------------------------------------------------------------------------


_PROBE: Final = 1
_STATUS: Final = {10: "remote access error", 11: "remote operation error", 12: "no answer"}


def _control_header(kind: str) -> bytes:
    return _HEADER.pack(-1, -1, 0, _KINDS.index(kind), 0, 0, 0, 0, 0)[:_CALL_END]


_ERROR_HEADER: Final = _control_header("error")
_GOODBYE_HEADER: Final = _control_header("goodbye")
_NOTHING: Final = torch.empty(0, dtype=torch.uint8)


class _Operation:
    """A collective, a send or a recv, from its call to its end.

    Attributes:
        name: for messages.
        key: by which its messages are told from others' in the group.
        says: what is called here, as each message to a rank says it.
        expects: what the messages of a rank must say.
        inbox: messages that have come before they were asked for.
        awaited: the rank whose message it waits for.
        unsent: messages that wait for a free slot.
    """

    def __init__(self, name: str, key: bytes, timeout_s: float) -> None:
        self.name = name
        self.key = key
        self.says: Callable[[int], bytes]
        self.expects: Callable[[int], bytes]
        self.inbox: dict[int, deque[Any]] = {}
        self.awaited: int | None = None
        self.unsent = 0
        self.steps: _Steps
        self.ended = False
        self.error: str | None = None
        self.finish: Callable[[], Any]
        self.future = torch.futures.Future()
        self.done = threading.Event()
        self.deadline = time.monotonic() + timeout_s

    def complete(self) -> None:
        try:
            result = self.finish()
        except Exception as error:  # noqa: BLE001 - it reaches who waits
            self.fail(str(error))
        else:
            self.future.set_result(result)
            self.done.set()

    def fail(self, error: str) -> None:
        if not self.future.done():
            self.error = error
            self.future.set_exception(MrcError(error))
            self.done.set()


class _Connection:
    """A queue pair to another rank of a group, and the slots at both ends."""

    def __init__(self, nic: _Nic, rank: int, arena: "_Arena", place: int) -> None:
        self.rank = rank
        self.qp = nic.create_qp()
        self.number: int = self.qp.contents.qp_num
        self.outbox: deque[tuple[_Operation | None, bytes, Any]] = deque()
        self.left = False  # it has said goodbye
        self.broken = False
        self.goodbye_seen = False  # ours has arrived there
        self.probing = False
        self.probed = 0.0
        self._nic = nic
        self._arena = arena
        self.receive_base = 2 * place * SLOTS * SLOT_BYTES
        self._send_base = self.receive_base + SLOTS * SLOT_BYTES
        self._credits = SLOTS
        self._sent = self._received = 0
        self._sge = _Sge(lkey=arena.key)
        self._request = _SendWr(sg_list=ctypes.pointer(self._sge), num_sge=1, opcode=_WRITE_IMM)
        self._bare = _SendWr()

    def connect(self, gid: bytes, number: int, address: int, key: int) -> None:
        self._nic.connect(self.qp, gid, number)
        self._remote, self._request.rkey = address, key
        self._bare.remote_addr, self._bare.rkey = address, key

    def flush(self, ended: Callable[[_Operation], None]) -> None:
        """Send what there are slots for; `ended` is told each operation that has sent a message."""
        while self.outbox and self._credits and not self.broken:
            operation, header, payload = self.outbox.popleft()
            slot = self._sent % SLOTS * SLOT_BYTES
            start, size = self._send_base + slot, len(payload)
            arena = self._arena
            arena.memory[start : start + _CALL_END] = header
            _HEADER_SIZE.pack_into(arena.memory, start + _CALL_END, size)
            if size:
                data = start + _HEADER_BYTES
                arena.tensor[data : data + size].copy_(payload)
            self._sge.addr = arena.address + start
            self._sge.length = _HEADER_BYTES + size
            request = self._request
            request.remote_addr = self._remote + slot
            request.send_flags = _SIGNALED if header == _GOODBYE_HEADER else 0
            self._nic.send(self.qp, request)
            self._sent += 1
            self._credits -= 1
            if operation is not None:
                operation.unsent -= 1
                ended(operation)

    def arrived(self, immediate: int) -> tuple[bytes, Any] | None:
        """Take in a message; returns its header and its payload, valid until `emptied`."""
        if immediate == _CREDIT:
            self._credits += _CREDITS
            self._nic.receive(self.qp, 1)
            return None
        start = self.receive_base + self._received % SLOTS * SLOT_BYTES
        header = self._arena.memory[start : start + _CALL_END]
        (size,) = _HEADER_SIZE.unpack_from(self._arena.memory, start + _CALL_END)
        data = start + _HEADER_BYTES
        return header, self._arena.tensor[data : data + size]

    def emptied(self) -> None:
        """Note that the last message has been read; return credits when there are some."""
        self._received += 1
        if self._received % _CREDITS == 0 and not self.broken:
            self._nic.receive(self.qp, _CREDITS)
            self._bare.opcode, self._bare.imm_data = _WRITE_IMM, _CREDIT
            self._bare.wr_id = self._bare.send_flags = 0
            self._nic.send(self.qp, self._bare)

    def probe(self, now: float) -> None:
        """Have the peer's NIC answer: an empty WRITE, which fails if the peer is gone."""
        if not self.probing and not self.broken:
            self.probing, self.probed = True, now
            self._bare.opcode, self._bare.imm_data = _WRITE, 0
            self._bare.wr_id, self._bare.send_flags = _PROBE, _SIGNALED
            self._nic.send(self.qp, self._bare)


class _Arena:
    """The registered memory of a group: for each peer its slots here, and copies of those there."""

    def __init__(self, nic: _Nic, peers: int) -> None:
        size = max(1, 2 * peers) * SLOTS * SLOT_BYTES
        self.memory = mmap.mmap(-1, size)
        self.tensor = torch.frombuffer(self.memory, dtype=torch.uint8)
        self.address: int = self.tensor.data_ptr()
        self.mr = nic.make(
            "reg_mr", _Mr, nic.pd, c_void_p(self.address), c_size_t(size), c_int(_ACCESS)
        )
        self.key: int = self.mr.contents.lkey


class _Group:
    """The connections of a group and its operations. All but the first two is the engine's."""

    def __init__(self, engine: "_Engine", rank: int, size: int, timeout_s: float) -> None:
        """Make the queue pairs, not yet connected."""
        self.engine = engine
        self.rank, self.size, self.timeout_s = rank, size, timeout_s
        self.error: str | None = None
        self.closed = threading.Event()
        self._closing = False
        self._active: dict[bytes, _Operation] = {}
        self._early: dict[bytes, list[tuple[int, bytes, Any]]] = {}
        peers = [peer for peer in range(size) if peer != rank]
        nic = engine.nic
        self._arena = _Arena(nic, len(peers))
        self.connections = {
            peer: _Connection(nic, peer, self._arena, place) for place, peer in enumerate(peers)
        }

    def meet(self, store: Any) -> None:
        """Connect to all other ranks; all of them are there when it returns."""
        arena = self._arena
        about = {
            "gid": self.engine.nic.gid.hex(),
            "key": arena.key,
            "slots": {
                peer: [connection.number, arena.address + connection.receive_base]
                for peer, connection in self.connections.items()
            },
        }
        store.set(f"mrc/{self.rank}", json.dumps(about))
        self.engine.add(self)
        hosts = {about["gid"]: self.rank}
        for peer, connection in self.connections.items():
            answer = json.loads(self._get(store, f"mrc/{peer}", peer))
            other = hosts.setdefault(answer["gid"], peer)
            if other != peer:
                raise MrcError(
                    f"ranks {other} and {peer} are on one host. An MRC host takes one rank: it has "
                    "no queue pairs to itself"
                )
            number, address = answer["slots"][str(self.rank)]
            connection.connect(bytes.fromhex(answer["gid"]), number, address, answer["key"])
        store.set(f"mrc/{self.rank}/connected", "1")
        for peer in self.connections:
            self._get(store, f"mrc/{peer}/connected", peer)

    def _get(self, store: Any, key: str, peer: int) -> Any:
        try:
            store.wait([key], timedelta(seconds=self.timeout_s))
        except Exception as error:
            raise MrcError(
                f"rank {peer} of {self.size} has not come within {self.timeout_s:g} s: start it, "
                "or give a smaller world size"
            ) from error
        return store.get(key)

    # --- operations ---

    def start(self, operation: _Operation) -> None:
        """Begin an operation."""
        if self.error is not None:
            operation.fail(self.error)
            return
        self._active[operation.key] = operation
        for peer, call, payload in self._early.pop(operation.key, ()):
            if not self._agrees(operation, peer, call):
                return
            operation.inbox.setdefault(peer, deque()).append(payload)
        self._advance(operation, None)

    def send(self, operation: _Operation, peer: int, payload: Any) -> None:
        """Send one message of an operation, at most `_PAYLOAD_BYTES`; it is copied later."""
        operation.unsent += 1
        header = operation.key + operation.says(peer)
        self.connections[peer].outbox.append((operation, header, payload))
        self.engine.to_flush.add(self.connections[peer])

    def _advance(self, operation: _Operation, message: Any) -> None:
        """Hand an operation its message, and have it go on until it needs another."""
        operation.awaited = None
        try:
            while True:
                peer = operation.steps.send(message)
                if not operation.inbox.get(peer):
                    break
                message = operation.inbox[peer].popleft()
        except StopIteration:
            operation.ended = True
            self.sent(operation)
            return
        except Exception as error:  # noqa: BLE001 - it reaches all ranks
            self.fail(f"{operation.name} on rank {self.rank}: {type(error).__name__}: {error}")
            return
        operation.awaited = peer
        if self.connections[peer].left:
            self.fail(f"rank {peer} has left the group during {operation.name}")

    def sent(self, operation: _Operation) -> None:
        """Complete an operation, if it has ended and has sent everything."""
        if operation.ended and not operation.unsent and operation.key in self._active:
            del self._active[operation.key]
            operation.complete()

    def _agrees(self, operation: _Operation, peer: int, call: bytes) -> bool:
        expected = operation.expects(peer)
        if call != expected:
            self.fail(
                f"rank {peer} calls {_describe(call)} where rank {self.rank} calls "
                f"{_describe(expected)}"
            )
        return call == expected

    def arrived(self, connection: _Connection, immediate: int) -> None:
        """Take in a message."""
        message = connection.arrived(immediate)
        if message is None:
            self.engine.to_flush.add(connection)
            return
        header, payload = message
        key, call = header[:_KEY_BYTES], header[_KEY_BYTES:]
        peer = connection.rank
        operation = self._active.get(key)
        if header == _GOODBYE_HEADER:
            self._lost(connection, f"rank {peer} has left the group")
            connection.left = True
        elif header == _ERROR_HEADER:
            self.fail(bytes(payload.tolist()).decode(errors="replace"), tell=False)
        elif self.error is not None:
            pass
        elif operation is None:
            self._early.setdefault(key, []).append((peer, call, payload.clone()))
        elif not self._agrees(operation, peer, call):
            pass
        elif operation.awaited == peer:
            self._advance(operation, payload)
        else:
            operation.inbox.setdefault(peer, deque()).append(payload.clone())
        connection.emptied()

    # --- errors, and the end ---

    def completed(self, connection: _Connection, entry: _Wc) -> None:
        """Take note of a completion."""
        if entry.status:
            if not connection.broken:
                connection.broken = True
                status = _STATUS.get(entry.status, f"status {entry.status}")
                self._lost(connection, f"rank {connection.rank} does not answer ({status})")
        elif entry.opcode == _RECEIVED:
            self.arrived(connection, entry.imm_data)
        elif entry.wr_id == _PROBE:
            connection.probing = False
        else:
            connection.goodbye_seen = True
        if self._closing:
            self._end_if_done()

    def _lost(self, connection: _Connection, error: str) -> None:
        """A rank is gone: that matters if something waits for it."""
        for operation in self._active.values():
            if operation.awaited == connection.rank:
                self.fail(f"{error} during {operation.name}")
                return
        connection.left = True

    def fail(self, error: str, *, tell: bool = True) -> None:
        """End all operations with an error, and have the other ranks do the same."""
        if self.error is not None:
            return
        self.error = error
        failed = [*self._active.values()]
        self._active.clear()
        self._early.clear()
        for connection in self.connections.values():
            connection.outbox.clear()
            if tell:
                text = error.encode()[:_PAYLOAD_BYTES]
                payload = torch.tensor(list(text), dtype=torch.uint8)
                connection.outbox.append((None, _ERROR_HEADER, payload))
            self.engine.to_flush.add(connection)
        for operation in failed:
            operation.fail(error)

    def tick(self, now: float) -> None:
        """Look for operations that wait in vain."""
        for operation in self._active.values():
            if now > operation.deadline:
                self.fail(
                    f"{operation.name} has not ended within {self.timeout_s:g} s: rank {self.rank} "
                    f"waits for rank {operation.awaited}"
                )
                return
            if operation.awaited is None:
                continue
            connection = self.connections[operation.awaited]
            if connection.probing and now > connection.probed + _SILENCE_S:
                connection.broken = True
                self.fail(f"rank {connection.rank} does not answer during {operation.name}")
                return
            connection.probe(now)

    @property
    def is_waiting(self) -> bool:
        """Whether an operation is in progress."""
        return bool(self._active)

    def begin_close(self) -> None:
        """Say goodbye to all ranks, and end when they know."""
        self.fail("the group has been destroyed", tell=False)
        self._closing = True
        for connection in self.connections.values():
            connection.outbox.append((None, _GOODBYE_HEADER, _NOTHING))
            self.engine.to_flush.add(connection)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if not all(c.left or c.broken or c.goodbye_seen for c in self.connections.values()):
            return
        self._closing = False
        nic = self.engine.nic
        self.engine.remove(self)
        for connection in self.connections.values():
            connection.broken = True
            nic.call("destroy_qp", connection.qp)
        nic.call("dereg_mr", self._arena.mr)
        self.closed.set()


def _describe(call: bytes) -> str:
    """What a rank calls, in words."""
    kind, dtype, reduction, root, count = struct.unpack("=BBBxiQ", call)
    name = _KINDS[kind] if kind < len(_KINDS) else f"operation {kind}"
    text = name
    if name != "barrier":
        elements = "element" if count == 1 else "elements"
        text += f" of {count} {elements} of {str(_DTYPES[dtype]).removeprefix('torch.')}"
    if reduction:
        text += f" with {[*_REDUCTIONS][reduction]}"
    return text + f" (root {root})" if name in _ROOTED else text


# --- the thread -----------------------------------------------------------------------------------


class _Engine:
    """The thread that moves the messages of all groups of this process."""

    def __init__(self) -> None:
        self.nic = _Nic()
        self.to_flush: set[_Connection] = set()
        self.patience_s = _GOODBYE_S
        self._connections: dict[int, tuple[_Group, _Connection]] = {}
        self._groups: list[_Group] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.thread = threading.Thread(target=self._run, name="torch_mrc", daemon=True)
        self.nic.req_notify(self.nic.cq, 0)
        self.thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Have the thread call a function."""
        self._calls.append(function)
        os.eventfd_write(self._wake, 1)

    def add(self, group: _Group) -> None:
        """Take in the messages of a group."""
        for connection in group.connections.values():
            self._connections[connection.number] = group, connection
        self._groups.append(group)

    def remove(self, group: _Group) -> None:
        """Forget a group."""
        for connection in group.connections.values():
            self._connections.pop(connection.number, None)
        self._groups.remove(group)

    def _run(self) -> None:
        with torch.inference_mode():  # so that it may write to tensors of either mode
            try:
                self._serve()
            except Exception as error:  # noqa: BLE001 - it reaches everybody who waits
                self._end(error)

    def _serve(self) -> None:
        poll = select.poll()
        channel = self.nic.channel.contents.fd
        poll.register(channel, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        next_tick = time.monotonic() + _TICK_S
        while True:
            waiting = any(group.is_waiting for group in self._groups)
            ready = dict(poll.poll(_TICK_S * 1000 if waiting else None))
            if channel in ready:
                self._complete()
            if self._wake in ready:
                os.eventfd_read(self._wake)
                while self._calls:
                    self._calls.popleft()()
            if time.monotonic() > next_tick:
                next_tick = time.monotonic() + _TICK_S
                for group in self._groups:
                    group.tick(time.monotonic())
            self._flush()

    def _complete(self) -> None:
        self.nic.take_event()
        for entry in self.nic.completions():
            found = self._connections.get(entry.qp_num)
            if found is not None:
                group, connection = found
                group.completed(connection, entry)

    def _flush(self) -> None:
        while self.to_flush:
            connection = self.to_flush.pop()
            found = self._connections.get(connection.number)
            if found is not None:
                connection.flush(found[0].sent)

    def _end(self, error: Exception) -> None:
        text = str(error) if isinstance(error, MrcError) else f"{type(error).__name__}: {error}"
        while True:
            for group in self._groups:
                group.fail(text, tell=False)
                group.closed.set()
            while self._calls:
                self._calls.popleft()()
            select.select([self._wake], [], [])
            os.eventfd_read(self._wake)


@functools.cache
def _engine() -> _Engine:
    return _Engine()


# --- algorithms -----------------------------------------------------------------------------------
#
# A generator yields the rank whose next message it needs, and gets that message's bytes.


def _pieces(tensor: Any) -> Iterator[Any]:
    """The parts of a flat tensor that fit into messages, as even as possible; at least one."""
    count = len(tensor)
    most = _PAYLOAD_BYTES // tensor.element_size()
    number = max(1, -(-count // most))
    for i in range(number):
        yield tensor[count * i // number : count * (i + 1) // number]


class _Member:
    """One rank's part of an operation."""

    def __init__(self, group: _Group | None, rank: int, size: int, operation: _Operation) -> None:
        self._group, self.rank, self.size, self._operation = group, rank, size, operation

    def send(self, peer: int, tensor: Any) -> None:
        """Send a flat tensor."""
        assert self._group is not None  # noqa: S101 - a group of one rank sends nothing
        for piece in _pieces(tensor):
            self._group.send(self._operation, peer, piece.view(torch.uint8))

    @staticmethod
    def receive(peer: int, tensor: Any) -> _Steps:
        """Receive a flat tensor."""
        for piece in _pieces(tensor):
            message = yield peer
            piece.copy_(message.view(tensor.dtype))

    def ring(
        self, chunks: Sequence[Any], start: int, steps: int, adding: int = 0, add: Any = None
    ) -> _Steps:
        """Send chunk `start` to the next rank; receive the `steps` chunks before it, pass them on.

        The first `adding` of them are added to what is here, the others replace it.
        """
        if self.size == 1:
            return
        following, previous = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        self.send(following, chunks[start % self.size])
        for step in range(steps):
            for piece in _pieces(chunks[(start - 1 - step) % self.size]):
                message = (yield previous).view(piece.dtype)
                if step < adding:
                    add(piece, message, is_last=step == adding - 1)
                else:
                    piece.copy_(message)
                if step < steps - 1:
                    self.send(following, piece)

    def up(self, tensor: Any, root: int, add: Any = None) -> _Steps:
        """Add tensors up a tree towards the root: pairs of neighbours, pairs of pairs and so on."""
        parent, children = _tree(self.rank, root, self.size)
        for piece in _pieces(tensor):
            for child in children:
                message = yield child
                if add is not None:
                    add(piece, message.view(piece.dtype), is_last=False)
            if parent is not None:
                self.send(parent, piece)

    def down(self, tensor: Any, root: int) -> _Steps:
        """Bring a tensor from the root down the same tree."""
        parent, children = _tree(self.rank, root, self.size)
        for piece in _pieces(tensor):
            if parent is not None:
                piece.copy_((yield parent).view(piece.dtype))
            for child in reversed(children):
                self.send(child, piece)

    def others(self) -> list[int]:
        """The other ranks, from the next one on."""
        return [(self.rank + i) % self.size for i in range(1, self.size)]


def _tree(rank: int, root: int, size: int) -> tuple[int | None, list[int]]:
    """The parent and the children of a rank in the binomial tree of a root."""
    place = (rank - root) % size
    children, step = list[int](), 1
    while step < size and not place & step:
        if place + step < size:
            children.append((place + step + root) % size)
        step *= 2
    parent = None if place == 0 else ((place & (place - 1)) + root) % size
    return parent, children


def _adder(reduction: str, size: int) -> Callable[..., None]:
    """The function that adds a message to a piece; of AVG the last one divides."""
    function = _REDUCTIONS[reduction]

    def add(piece: Any, message: Any, *, is_last: bool) -> None:
        function(message, piece, out=piece)
        if is_last and reduction == "AVG":
            piece.div_(size)

    return add


# --- what torch calls -----------------------------------------------------------------------------

_works: "weakref.WeakKeyDictionary[Any, _Operation]" = weakref.WeakKeyDictionary()
_torch_wait = c10d.Work.wait


def _wait(work: Any, timeout: timedelta = timedelta(0)) -> Any:
    """Work.wait, which for the work of a Future knows no timeout and does not raise its error."""
    operation = _works.get(work)
    if operation is None:
        return _torch_wait(work, timeout)
    seconds = timeout.total_seconds()
    if seconds > 0 and not operation.done.wait(seconds):
        raise MrcError(
            f"{operation.name} has not ended within {seconds:g} s: it goes on, wait for it again"
        )
    done = _torch_wait(work)
    if operation.error is not None:
        raise MrcError(operation.error)
    return done


c10d.Work.wait = _wait


def _names(things: Sequence[Any]) -> str:
    return ", ".join(str(thing).removeprefix("torch.") for thing in things)


def _flatten(name: str, tensors: Sequence[Any]) -> Any:
    """The elements of some tensors of one type; of one contiguous tensor a view, else a copy."""
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise MrcError(
                f"{name}: found a tensor of layout {tensor.layout} on {tensor.device}, expected a "
                "dense one on the CPU"
            )
        if tensor.dtype not in _DTYPES:
            raise MrcError(
                f"{name}: found a tensor of {_names([tensor.dtype])}, expected one of "
                f"{_names(_DTYPES)}"
            )
        if tensor.dtype != tensors[0].dtype:
            raise MrcError(f"{name}: found {_names([t.dtype for t in tensors])}, expected one type")
    if not tensors:
        raise MrcError(f"{name}: found no tensor, expected one")
    flat = [t.detach().resolve_conj().resolve_neg().contiguous().view(-1) for t in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _put_back(flat: Any, tensors: Sequence[Any]) -> None:
    """Copy elements to the tensors of `_flatten`, where they are not views."""
    if len(tensors) == 1 and flat.data_ptr() == tensors[0].data_ptr():
        return
    start = 0
    for tensor in tensors:
        part = flat[start : start + tensor.numel()]
        tensor.detach().copy_(part.view(tensor.shape))
        start += tensor.numel()


def _reduction(name: str, operation: Any, dtype: Any) -> str:
    found = str(getattr(operation, "op", operation)).rpartition(".")[2]
    if dtype.is_complex:
        usable = ["SUM", "AVG", "PRODUCT"]
    elif dtype.is_floating_point:
        usable = ["SUM", "AVG", "PRODUCT", "MIN", "MAX"]
    else:
        usable = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
    if found not in usable:
        raise MrcError(
            f"{name} of {_names([dtype])}: found {found}, expected one of {', '.join(usable)}"
        )
    return found


def _close(group: _Group) -> None:
    """Say goodbye, so that no rank takes the end of this one for a fault."""
    group.engine.call(group.begin_close)
    engine = group.engine
    if threading.current_thread() is not engine.thread and not group.closed.wait(engine.patience_s):
        engine.patience_s = _GOODBYE_S / 10  # the other groups have the same dead rank


class ProcessGroupMrc(dist.ProcessGroup):
    """A group of ranks, one on each host."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        """Connect to all other ranks of a group.

        Args:
            store: by which they meet.
            rank: of this process in the group.
            size: the number of ranks.
            timeout: how long a rank may take to come, and an operation to end.

        Raises:
            MrcError: there is no device, or a rank has not come.
        """
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._name = ""
        self._timeout_s = timeout.total_seconds()
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._group: _Group | None = None
        self._finalizer: Any = None
        if size > 1:
            self._group = _Group(_engine(), rank, size, self._timeout_s)
            self._group.meet(store)
            self._finalizer = weakref.finalize(self, _close, self._group)

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return the name of the backend."""
        return "mrc"

    def setGroupName(self, name: str) -> None:  # noqa: N802 - torch's name
        """Take the name that torch 2 gives the group."""
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802 - torch's name
        """Return it."""
        return self._name

    def shutdown(self) -> None:
        """Leave the group."""
        if self._finalizer is not None:
            self._finalizer()

    abort = shutdown

    # --- the frame of an operation ---

    def _operation(
        self,
        name: str,
        flat: Any,
        *,
        reduction: str = "",
        root: int = -1,
        peer: int = -1,
        sender: int = -1,
        tag: int = 0,
    ) -> tuple[_Operation, _Member]:
        """An operation whose messages say what is called here.

        Args:
            name: what is called.
            flat: what is sent, for its type and its size.
            reduction: how numbers are added.
            root: the rank from which or to which data goes.
            peer: the other rank, if it is no collective.
            sender: the one of both that sends.
            tag: theirs.
        """
        place = (peer, sender, tag)
        number = self._numbers.get(place, 0)
        self._numbers[place] = number + 1
        operation = _Operation(name, struct.pack("=iiQ", sender, tag, number), self._timeout_s)
        kind, dtype = _KINDS.index(name), _DTYPES.index(flat.dtype)
        call = struct.pack("=BBBxiQ", kind, dtype, [*_REDUCTIONS].index(reduction), root, len(flat))
        operation.says = operation.expects = lambda _: call
        return operation, _Member(self._group, self._rank, self._size, operation)

    def _run(self, operation: _Operation, steps: _Steps, finish: Callable[[], Any]) -> Any:
        """Begin an operation; returns its work."""
        operation.steps, operation.finish = steps, finish
        # Only the error of a Future's callback reaches those who wait in C++, such as DDP.
        work = c10d._create_work_from_future(operation.future.then(lambda done: done.value()))  # noqa: SLF001
        _works[work] = operation
        group = self._group
        if group is None:
            for peer in steps:
                raise AssertionError(f"a group of one rank waits for rank {peer}")
            operation.complete()
        else:
            group.engine.call(lambda: group.start(operation))
        return work

    # --- collectives ---

    def allreduce(self, tensors: list[Any], opts: Any = None) -> Any:
        """Add the tensors of all ranks; every rank gets the same bits."""
        name = "all_reduce"
        flat = _flatten(name, tensors)
        reduction = _reduction(name, (opts or c10d.AllreduceOptions()).reduceOp, flat.dtype)
        operation, member = self._operation(name, flat, reduction=reduction)
        add = _adder(reduction, self._size)

        def steps() -> _Steps:
            count, n = len(flat), self._size
            if count * flat.element_size() < TREE_BYTES:
                yield from member.up(flat, 0, add)
                if reduction == "AVG" and self._rank == 0:
                    flat.div_(n)
                yield from member.down(flat, 0)
            else:
                chunks = [flat[count * i // n : count * (i + 1) // n] for i in range(n)]
                yield from member.ring(chunks, self._rank - 1, 2 * n - 2, n - 1, add)

        def finish() -> list[Any]:
            _put_back(flat, tensors)
            return tensors

        return self._run(operation, steps(), finish)

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Any:
        """Add several tensors of each rank at once."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[Any], opts: Any) -> Any:
        """Add the tensors of all ranks; the root gets the sum."""
        name, root = "reduce", opts.rootRank
        flat = _flatten(name, tensors)
        reduction = _reduction(name, opts.reduceOp, flat.dtype)
        operation, member = self._operation(name, flat, reduction=reduction, root=root)
        total = flat.clone()

        def steps() -> _Steps:
            yield from member.up(total, root, _adder(reduction, self._size))
            yield from member.down(_NOTHING, root)

        def finish() -> list[Any]:
            if self._rank == root:
                if reduction == "AVG":
                    total.div_(self._size)
                _put_back(total, tensors)
            return tensors

        return self._run(operation, steps(), finish)

    def broadcast(self, tensors: list[Any], opts: Any) -> Any:
        """Bring the root's tensor to all ranks."""
        name, root = "broadcast", opts.rootRank
        flat = _flatten(name, tensors)
        operation, member = self._operation(name, flat, root=root)

        def steps() -> _Steps:
            yield from member.up(_NOTHING, root)
            yield from member.down(flat, root)

        def finish() -> list[Any]:
            _put_back(flat, tensors)
            return tensors

        return self._run(operation, steps(), finish)

    def barrier(self, opts: Any = None) -> Any:  # noqa: ARG002 - torch's signature
        """Wait for all ranks."""
        operation, member = self._operation("barrier", _NOTHING)

        def steps() -> _Steps:
            yield from member.up(_NOTHING, 0)
            yield from member.down(_NOTHING, 0)

        return self._run(operation, steps(), list)

    def allgather(self, outputs: list[list[Any]], inputs: list[Any], opts: Any = None) -> Any:  # noqa: ARG002 - torch's signature
        """Bring every rank's tensor to all ranks."""
        ((out,), (mine,)) = outputs, inputs
        return self._all_gather(out, _flatten("all_gather", [mine]), outputs)

    def all_gather_single(self, output: Any, mine: Any, opts: Any = None) -> Any:  # noqa: ARG002 - torch's signature
        """The same, with one tensor for the outputs of all ranks."""
        return self._all_gather([output], _flatten("all_gather", [mine]), [output])

    _allgather_base = all_gather_single

    def _all_gather(self, out: list[Any], mine: Any, result: Any) -> Any:
        name, n = "all_gather", self._size
        whole = _flatten(name, out)
        self._require(name, whole, mine, n)
        operation, member = self._operation(name, mine)

        def steps() -> _Steps:
            chunks = _chunks(whole, n)
            chunks[self._rank].copy_(mine)
            yield from member.ring(chunks, self._rank, n - 1)

        def finish() -> Any:
            _put_back(whole, out)
            return result

        return self._run(operation, steps(), finish)

    def reduce_scatter(self, outputs: list[Any], inputs: list[list[Any]], opts: Any) -> Any:
        """Add tensor i of every rank for rank i."""
        ((out,), (parts,)) = outputs, inputs
        return self._reduce_scatter(out, parts, opts)

    def reduce_scatter_single(self, output: Any, whole: Any, opts: Any) -> Any:
        """The same, with one tensor for the inputs."""
        return self._reduce_scatter(output, [whole], opts)

    _reduce_scatter_base = reduce_scatter_single

    def _reduce_scatter(self, output: Any, parts: list[Any], opts: Any) -> Any:
        name, n = "reduce_scatter", self._size
        mine, whole = _flatten(name, [output]), _flatten(name, parts)
        self._require(name, whole, mine, n)
        reduction = _reduction(name, opts.reduceOp, mine.dtype)
        operation, member = self._operation(name, mine, reduction=reduction)
        chunks = _chunks(whole.clone(), n)

        def steps() -> _Steps:
            add = _adder(reduction, n)
            yield from member.ring(chunks, self._rank - 1, n - 1, n - 1, add)

        def finish() -> list[Any]:
            _put_back(chunks[self._rank], [output])
            return [output]

        return self._run(operation, steps(), finish)

    def gather(self, outputs: list[list[Any]], inputs: list[Any], opts: Any) -> Any:
        """Bring every rank's tensor to the root."""
        name, root, n = "gather", opts.rootRank, self._size
        mine = _flatten(name, inputs)
        operation, member = self._operation(name, mine, root=root)
        is_root = self._rank == root
        whole = _flatten(name, outputs[0]) if is_root else mine
        self._require(name, whole, mine, n if is_root else 1)

        def steps() -> _Steps:
            if not is_root:
                member.send(root, mine)
                yield root
                return
            chunks = _chunks(whole, n)
            chunks[root].copy_(mine)
            for peer in member.others():
                yield from member.receive(peer, chunks[peer])
            for peer in member.others():
                member.send(peer, _NOTHING)

        def finish() -> Any:
            if is_root:
                _put_back(whole, outputs[0])
            return outputs

        return self._run(operation, steps(), finish)

    def scatter(self, outputs: list[Any], inputs: list[list[Any]], opts: Any) -> Any:
        """Bring tensor i of the root to rank i."""
        name, root, n = "scatter", opts.rootRank, self._size
        mine = _flatten(name, outputs)
        operation, member = self._operation(name, mine, root=root)
        is_root = self._rank == root
        whole = _flatten(name, inputs[0]) if is_root else mine
        self._require(name, whole, mine, n if is_root else 1)

        def steps() -> _Steps:
            if not is_root:
                member.send(root, _NOTHING)
                yield from member.receive(root, mine)
                return
            chunks = _chunks(whole, n)
            mine.copy_(chunks[root])
            for peer in member.others():
                yield peer
            for peer in member.others():
                member.send(peer, chunks[peer])

        def finish() -> list[Any]:
            _put_back(mine, outputs)
            return outputs

        return self._run(operation, steps(), finish)

    def alltoall(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:  # noqa: ARG002 - torch's signature
        """Bring tensor i of rank j to rank i as its tensor j."""
        name = "all_to_all"
        for tensors in (outputs, inputs):
            if len(tensors) != self._size:
                raise MrcError(f"{name}: found {len(tensors)} tensors, expected {self._size}")
        parts = [_flatten(name, [tensor]) for tensor in outputs]

        def finish() -> list[Any]:
            for part, tensor in zip(parts, outputs, strict=True):
                _put_back(part, [tensor])
            return outputs

        return self._all_to_all(parts, [_flatten(name, [each]) for each in inputs], finish)

    def alltoall_base(
        self,
        output: Any,
        whole: Any,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        opts: Any = None,  # noqa: ARG002 - torch's signature
    ) -> Any:
        """The same, with one tensor for the outputs and one for the inputs, split by rows."""
        name = "all_to_all"
        out, into = _flatten(name, [output]), _flatten(name, [whole])
        parts = self._split(name, out, output, output_sizes)

        def finish() -> list[Any]:
            _put_back(out, [output])
            return [output]

        return self._all_to_all(parts, self._split(name, into, whole, input_sizes), finish)

    all_to_all_single = alltoall_base

    def _split(self, name: str, flat: Any, tensor: Any, sizes: Sequence[int]) -> list[Any]:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not sizes and rows % self._size == 0:
            sizes = [rows // self._size] * self._size
        if len(sizes) != self._size or sum(sizes) != rows:
            raise MrcError(
                f"{name}: found {rows} rows in parts of {[*sizes]}, expected {self._size} parts "
                "that add up to the rows"
            )
        row = len(flat) // rows if rows else 0
        return [*flat.split([size * row for size in sizes])]

    def _all_to_all(self, outputs: list[Any], inputs: list[Any], finish: Callable[[], Any]) -> Any:
        operation, member = self._operation("all_to_all", inputs[0])
        call = operation.says(0)[:-8]
        operation.says = lambda peer: call + struct.pack("=Q", len(inputs[peer]))
        operation.expects = lambda peer: call + struct.pack("=Q", len(outputs[peer]))
        if len(inputs[self._rank]) != len(outputs[self._rank]):
            raise MrcError(
                f"all_to_all: rank {self._rank} sends itself {len(inputs[self._rank])} elements "
                f"and expects {len(outputs[self._rank])}"
            )

        def steps() -> _Steps:
            outputs[self._rank].copy_(inputs[self._rank])
            for peer in member.others():
                member.send(peer, inputs[peer])
            for peer in reversed(member.others()):
                yield from member.receive(peer, outputs[peer])

        return self._run(operation, steps(), finish)

    @staticmethod
    def _require(name: str, whole: Any, part: Any, count: int) -> None:
        if len(whole) != count * len(part) or whole.dtype != part.dtype:
            raise MrcError(
                f"{name}: found {len(whole)} elements of {_names([whole.dtype])}, expected "
                f"{count} times {len(part)} of {_names([part.dtype])}"
            )

    # --- from one rank to another ---

    def send(self, tensors: list[Any], peer: int, tag: int) -> Any:
        """Send a tensor to a rank, once that has called recv."""
        operation, member, flat = self._transfer(tensors, self._rank, peer, tag)

        def steps() -> _Steps:
            yield peer
            member.send(peer, flat)

        return self._run(operation, steps(), lambda: tensors)

    def recv(self, tensors: list[Any], peer: int, tag: int) -> Any:
        """Receive a tensor from a rank."""
        operation, member, flat = self._transfer(tensors, peer, peer, tag)

        def steps() -> _Steps:
            member.send(peer, _NOTHING)
            yield from member.receive(peer, flat)

        def finish() -> list[Any]:
            _put_back(flat, tensors)
            return tensors

        return self._run(operation, steps(), finish)

    def _transfer(
        self, tensors: list[Any], sender: int, peer: int, tag: int
    ) -> tuple[_Operation, _Member, Any]:
        name = "send and recv"
        if peer == self._rank or not 0 <= peer < self._size:
            raise MrcError(f"{name}: found rank {peer}, expected another one of {self._size}")
        flat = _flatten(name, tensors)
        return *self._operation(name, flat, peer=peer, sender=sender, tag=tag), flat

    def recv_anysource(self, tensors: list[Any], tag: int) -> Any:  # noqa: ARG002 - torch's signature
        """Refuse: the receiver names the sender."""
        raise MrcError("recv: found no source, expected a rank: recv(tensor, src=RANK)")

    # --- what is not there ---

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise MrcError(
            f"found a coalesced operation, expected one of {', '.join(_KINDS[2:])}, "
            "all_reduce_coalesced: call it for each tensor"
        )

    allgather_coalesced = allgather_into_tensor_coalesced = all_gather_single_coalesced = _refuse
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced = _refuse


def _chunks(whole: Any, count: int) -> list[Any]:
    size = len(whole) // count
    return [whole[i * size : (i + 1) * size] for i in range(count)]


_more: dict[str, Any] = (
    {"devices": ["cpu"]}
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters
    else {}  # torch 1.13
)
dist.Backend.register_backend("mrc", ProcessGroupMrc, **_more)
