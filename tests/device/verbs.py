"""The verbs API in Python, through ctypes and the library that other people's programs load."""

import ctypes
import os
import time
from collections.abc import Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    byref,
    c_char,
    c_int,
    c_size_t,
    c_uint8,
    c_uint32,
    c_void_p,
)
from pathlib import Path
from typing import Any, ClassVar

from testbed.device.abi import (
    Ah,
    Cap,
    Fields,
    Gid,
    Mr,
    QpAttr,
    RecvWr,
    Route,
    SendWr,
    Sge,
    Wc,
)
from testbed.device.protocol import IbvMask, IbvState
from tests.waiting import WATCHDOG_S

MTU_4096 = 5
ACCESS = 3
"""IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE."""

WRITE, WRITE_IMM, SEND, READ = 0, 1, 2, 4
SIGNALED, INLINE = 2, 8

INIT = IbvMask.STATE | IbvMask.PKEY_INDEX | IbvMask.PORT | IbvMask.ACCESS_FLAGS
RTR = (
    IbvMask.STATE
    | IbvMask.AV
    | IbvMask.PATH_MTU
    | IbvMask.DEST_QPN
    | IbvMask.RQ_PSN
    | IbvMask.MAX_DEST_RD_ATOMIC
    | IbvMask.MIN_RNR_TIMER
)
RTS = (
    IbvMask.STATE
    | IbvMask.TIMEOUT
    | IbvMask.RETRY_CNT
    | IbvMask.RNR_RETRY
    | IbvMask.SQ_PSN
    | IbvMask.MAX_QP_RD_ATOMIC
)


class Pd(Structure):
    _fields_: ClassVar[Fields] = [("context", c_void_p), ("handle", c_uint32)]


class CompChannel(Structure):
    _fields_: ClassVar[Fields] = [("context", c_void_p), ("fd", c_int), ("refcnt", c_int)]


class Cq(Structure):
    _fields_: ClassVar[Fields] = [
        ("context", c_void_p),
        ("channel", c_void_p),
        ("cq_context", c_void_p),
        ("handle", c_uint32),
        ("cqe", c_int),
    ]


class QpInit(Structure):
    _fields_: ClassVar[Fields] = [
        ("qp_context", c_void_p),
        ("send_cq", POINTER(Cq)),
        ("recv_cq", POINTER(Cq)),
        ("srq", c_void_p),
        ("cap", Cap),
        ("qp_type", c_int),
        ("sq_sig_all", c_int),
    ]


class Qp(Structure):
    _fields_: ClassVar[Fields] = [
        ("context", c_void_p),
        ("qp_context", c_void_p),
        ("pd", c_void_p),
        ("send_cq", c_void_p),
        ("recv_cq", c_void_p),
        ("srq", c_void_p),
        ("handle", c_uint32),
        ("qp_num", c_uint32),
        ("state", c_int),
        ("qp_type", c_int),
    ]


class Element(Union):
    _fields_: ClassVar[Fields] = [("cq", POINTER(Cq)), ("qp", POINTER(Qp)), ("port_num", c_int)]


class AsyncEvent(Structure):
    _fields_: ClassVar[Fields] = [("element", Element), ("event_type", c_int)]


POLL = CFUNCTYPE(c_int, POINTER(Cq), c_int, POINTER(Wc))
NOTIFY = CFUNCTYPE(c_int, POINTER(Cq), c_int)
POST_SEND = CFUNCTYPE(c_int, POINTER(Qp), POINTER(SendWr), POINTER(POINTER(SendWr)))
POST_RECV = CFUNCTYPE(c_int, POINTER(Qp), POINTER(RecvWr), POINTER(POINTER(RecvWr)))


class Ops(Structure):
    _fields_: ClassVar[Fields] = [
        ("_1", c_void_p * 11),
        ("poll_cq", POLL),
        ("req_notify_cq", NOTIFY),
        ("_3", c_void_p * 7),
        ("_4", c_void_p * 5),
        ("post_send", POST_SEND),
        ("post_recv", POST_RECV),
        ("_5", c_void_p * 5),
    ]


class Context(Structure):
    _fields_: ClassVar[Fields] = [
        ("device", c_void_p),
        ("ops", Ops),
        ("cmd_fd", c_int),
        ("async_fd", c_int),
        ("num_comp_vectors", c_int),
    ]


class VerbsError(OSError):
    """A function of the library failed: its errno."""


class Library:
    """The functions of the library, with the errors that they set as exceptions."""

    _POINTERS: ClassVar = {
        "ibv_open_device": Context,
        "ibv_alloc_pd": Pd,
        "ibv_reg_mr": Mr,
        "ibv_reg_mr_iova2": Mr,
        "ibv_create_comp_channel": CompChannel,
        "ibv_create_cq": Cq,
        "ibv_create_qp": Qp,
        "ibv_create_srq": c_char,
        "ibv_create_ah": c_char,
    }

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path), use_errno=True)
        for name, kind in self._POINTERS.items():
            getattr(self._library, name).restype = POINTER(kind)
        self._library.ibv_get_device_list.restype = POINTER(c_void_p)

    def names(self) -> int:
        """How many devices there are."""
        count = c_int()
        devices = self._library.ibv_get_device_list(byref(count))
        self._library.ibv_free_device_list(devices)
        return count.value

    def open(self) -> Any:
        """Open the first device."""
        devices = self._library.ibv_get_device_list(None)
        if not devices[0]:
            raise VerbsError(19, "no device")
        context = self._library.ibv_open_device(c_void_p(devices[0]))
        self._library.ibv_free_device_list(devices)
        if not context:
            raise VerbsError(ctypes.get_errno(), "ibv_open_device")
        return context

    def make(self, name: str, *arguments: Any) -> Any:
        """Call a function that returns an object."""
        made = getattr(self._library, f"ibv_{name}")(*arguments)
        if not made:
            raise VerbsError(ctypes.get_errno(), name)
        return made

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns 0, or an errno."""
        error = getattr(self._library, f"ibv_{name}")(*arguments)
        if error:
            raise VerbsError(ctypes.get_errno() if error < 0 else error, name)


class End:
    """One program: a device, a protection domain, a buffer, and a queue pair or more."""

    def __init__(
        self, path: Path, *, size: int = 1 << 16, channel: bool = False, cqe: int = 256
    ) -> None:
        self.library = library = Library(path)
        self.context = library.open()
        self.ops = self.context.contents.ops
        self.pd = library.make("alloc_pd", self.context)
        self.buffer = ctypes.create_string_buffer(size)
        self.mr = library.make("reg_mr", self.pd, self.buffer, c_size_t(size), ACCESS)
        self.channel: Any = None
        if channel:
            self.channel = library.make("create_comp_channel", self.context)
        self.cq = self.make_cq(cqe)

    def make_cq(self, cqe: int) -> Any:
        return self.library.make("create_cq", self.context, cqe, None, self.channel, 0)

    def make_qp(
        self, *, send_cq: Any = None, depth: int = 64, signal_all: bool = False, kind: int = 2
    ) -> Any:
        init = QpInit(
            send_cq=send_cq or self.cq,
            recv_cq=self.cq,
            cap=Cap(depth, depth, 4, 4, 64),
            qp_type=kind,
            sq_sig_all=signal_all,
        )
        return self.library.make("create_qp", self.pd, byref(init))

    @property
    def gid(self) -> bytes:
        gid = Gid()
        self.library.call("query_gid", self.context, 1, 0, byref(gid))
        return bytes(gid.raw)

    @property
    def va(self) -> int:
        return ctypes.addressof(self.buffer)

    def modify(self, qp: Any, state: IbvState, mask: int, **fields: Any) -> None:
        attr = QpAttr(qp_state=state, port_num=1, retry_cnt=7, timeout=14, **fields)
        self.library.call("modify_qp", qp, byref(attr), int(mask))

    @staticmethod
    def route(gid: bytes) -> Ah:
        """The way to a peer."""
        return Ah(
            grh=Route(dgid=Gid(raw=(c_uint8 * 16).from_buffer_copy(gid))), is_global=1, port_num=1
        )

    def connect(
        self, qp: Any, gid: bytes, number: int, *, psn: int = 7, peer_psn: int = 7, retries: int = 7
    ) -> None:
        self.modify(qp, IbvState.INIT, INIT, qp_access_flags=ACCESS)
        self.modify(
            qp,
            IbvState.RTR,
            RTR,
            path_mtu=MTU_4096,
            dest_qp_num=number,
            rq_psn=peer_psn,
            ah_attr=self.route(gid),
        )
        attr = QpAttr(qp_state=IbvState.RTS, timeout=14, retry_cnt=retries, sq_psn=psn)
        self.library.call("modify_qp", qp, byref(attr), int(RTS))

    def post(
        self,
        qp: Any,
        wr_id: int,
        remote: tuple[int, int],
        size: int,
        *,
        offset: int = 0,
        opcode: int = WRITE,
        flags: int = SIGNALED,
        immediate: int = 0,
        lkey: int | None = None,
        pieces: Sequence[tuple[int, int]] = (),
    ) -> int:
        """Post a WRITE to (address, rkey); returns the function's result."""
        places = pieces or [(offset, size)]
        key = self.mr.contents.lkey if lkey is None else lkey
        sges = (Sge * len(places))(*[Sge(self.va + at, length, key) for at, length in places])
        wr = SendWr(
            wr_id=wr_id,
            sg_list=sges,
            num_sge=len(places),
            opcode=opcode,
            send_flags=flags,
            imm_data=int.from_bytes(immediate.to_bytes(4, "big"), "little"),
            remote_addr=remote[0],
            rkey=remote[1],
        )
        bad = POINTER(SendWr)()
        result: int = self.ops.post_send(qp, byref(wr), byref(bad))
        return result

    def post_recv(self, qp: Any, wr_id: int) -> int:
        bad = POINTER(RecvWr)()
        result: int = self.ops.post_recv(qp, byref(RecvWr(wr_id=wr_id)), byref(bad))
        return result

    def poll(self, cq: Any = None, most: int = 16) -> list[Wc]:
        entries = (Wc * most)()
        count = self.ops.poll_cq(cq or self.cq, most, entries)
        if count < 0:
            raise VerbsError(5, "poll_cq")
        return [Wc.from_buffer_copy(entries[i]) for i in range(count)]

    def wait(self, count: int = 1, cq: Any = None) -> list[Wc]:
        """Poll until so many completions have come."""
        found: list[Wc] = []
        end = time.monotonic() + WATCHDOG_S
        while len(found) < count:
            assert time.monotonic() < end
            found += self.poll(cq, count - len(found))
        return found

    def close(self) -> None:
        self.library.call("close_device", self.context)


def fill(end: End, data: bytes, offset: int = 0) -> None:
    """Write into an end's buffer."""
    ctypes.memmove(end.va + offset, data, len(data))


def content(end: End, size: int, offset: int = 0) -> bytes:
    """Read an end's buffer."""
    return ctypes.string_at(end.va + offset, size)


def pid_of(_: End) -> int:
    return os.getpid()
