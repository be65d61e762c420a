"""One program's connection to the NIC of its host: its objects, and what it asks for."""

import errno
import os
import socket
import struct
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from testbed.device.abi import QP_ATTR, MrcAttributes, QpProfiles
from testbed.device.control import Controller
from testbed.device.process_memory import Memory, ProcessMemory, ProcessRegion, ThreadMemory
from testbed.device.profiles import read
from testbed.device.protocol import (
    COOKIE,
    MAX_CQE,
    MAX_DEPTH,
    MODIFY_MRC,
    MTUS,
    REPLY,
    REQUEST,
    STATES,
    VERSION,
    Call,
    IbvAccess,
    IbvEvent,
    IbvMask,
    Op,
    Reply,
    Request,
)
from testbed.device.queues import (
    Channel,
    EventPipe,
    ProgramCq,
    ProgramError,
    ProgramQp,
    ProtectionDomain,
    Sent,
    event,
)
from testbed.emulation.endpoint.base_device import BaseDevice
from testbed.model.closeable import Closeable
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.mrc import MemoryTable, QpState
from testbed.mrc.constants import MAX_EXPONENTIAL_RETRIES, MAX_LINEAR_RETRIES
from testbed.mrc.qp import QpStateError
from testbed.mrc.verbs import CompletionQueue, Destination, QpAttributes

if TYPE_CHECKING:
    from testbed.device.evs import EventQueue

_CREDENTIALS: Final = struct.Struct("3i")
_MOST_OBJECTS: Final = 1 << 16
_GUID: Final = 0x4D52_4300_0000_0000
"""The upper half of a device's GUID: "MRC"."""

_IBV_STATES: Final = {state: number for number, state in STATES.items()}

_NEEDED_BY_MRC: Final = {
    QpState.INIT: IbvMask.ACCESS_FLAGS,
    QpState.RTR: IbvMask.AV | IbvMask.PATH_MTU | IbvMask.DEST_QPN | IbvMask.RQ_PSN,
    QpState.RTS: IbvMask.SQ_PSN,
}

_NEEDED: Final = {
    QpState.INIT: IbvMask.PKEY_INDEX | IbvMask.PORT | IbvMask.ACCESS_FLAGS,
    QpState.RTR: IbvMask.AV
    | IbvMask.PATH_MTU
    | IbvMask.DEST_QPN
    | IbvMask.RQ_PSN
    | IbvMask.MAX_DEST_RD_ATOMIC
    | IbvMask.MIN_RNR_TIMER,
    QpState.RTS: IbvMask.SQ_PSN
    | IbvMask.TIMEOUT
    | IbvMask.RETRY_CNT
    | IbvMask.RNR_RETRY
    | IbvMask.MAX_QP_RD_ATOMIC,
}
"""What a change of state must bring (ibv_modify_qp(3), RC)."""

_MTUS: Final = frozenset(size for size in MTUS if size <= PAYLOAD_MTU)

_WORD: Final = 0xFFFF_FFFF

_REQUESTS_AT_ONCE: Final = 64
"""A program that asks without end does not keep the NIC from the others."""

Answer = tuple[Reply, list[int]]


def owner_of(connection: socket.socket) -> tuple[int, int]:
    """The process at the other end of a connection, and its user (unix(7))."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid, uid


class Program(Closeable):
    """A program that uses the NIC.

    Attributes:
        pid: its process.
        device: the NIC, once the program has opened it.
        doorbell: an eventfd by which it wakes the NIC.
        process: readable when its process has ended, even if a child of it has the connection; None
            where the kernel does not tell.
    """

    def __init__(
        self, connection: socket.socket, controller: Controller, clock: Callable[[], int]
    ) -> None:
        """Take over a connection, which does not block.

        Args:
            connection: to the program.
            controller: the state that controllers set of the NIC.
            clock: the time of the fabric, in ns.
        """
        self.pid, _ = owner_of(connection)
        self._clock = clock
        self.device: BaseDevice | None = None
        self._connection = connection
        self._memory: Memory = ProcessMemory(self.pid)
        self._to_thread: socket.socket | None = None
        self._objects: dict[int, Any] = {}
        self._handles = 0
        self._controller = controller
        self._qps: dict[int, ProgramQp] = {}
        self._ev_events: dict[int, EventQueue] = {}
        self._cqs: dict[int, ProgramCq] = {}
        self._sent = Sent()
        self.doorbell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self._events = EventPipe()
        except OSError:
            os.close(self.doorbell)
            raise
        self.process: int | None = None
        with suppress(OSError):  # it is in another PID namespace, or a filter forbids the call
            self.process = os.pidfd_open(self.pid)
        self._operations: dict[int, Callable[[BaseDevice, Request], Answer]] = {
            Op.ALLOC_PD: self._alloc_pd,
            Op.DEALLOC_PD: self._dealloc_pd,
            Op.REG_MR: self._reg_mr,
            Op.DEREG_MR: self._dereg_mr,
            Op.CREATE_CHANNEL: self._create_channel,
            Op.DESTROY_CHANNEL: self._destroy_channel,
            Op.CREATE_CQ: self._create_cq,
            Op.DESTROY_CQ: self._destroy_cq,
            Op.CREATE_QP: self._create_qp,
            Op.MODIFY_QP: self._modify_qp,
            Op.QUERY_QP: self._query_qp,
            Op.DESTROY_QP: self._destroy_qp,
            Op.REPORT: self._report,
            Op.RESIZE_CQ: self._resize_cq,
            Op.QUERY_PORTS: self._query_ports,
            Op.SET_MRC: self._set_mrc,
            Op.CONTROL: self._control,
        }

    @property
    def qps(self) -> Collection[ProgramQp]:
        """Its queue pairs."""
        return self._qps.values()

    def fileno(self) -> int:
        """The descriptor of its connection."""
        return self._connection.fileno()

    # --- its rounds ---------------------------------------------------------------------------

    def take_posted(self, now_ns: int) -> None:
        """Hand its new work requests to the protocol core.

        Raises:
            ProgramError: it has written what no library writes.
        """
        for qp in self._qps.values():
            if qp.take_posted(now_ns):
                qp.take_posted(now_ns)  # what was posted before the program saw the ring emptied

    def deliver(self, now_ns: int) -> None:
        """Report what has completed."""
        for qp in self._qps.values():
            qp.deliver(now_ns)
        for cq in self._cqs.values():
            cq.announce()

    def woken(self) -> None:
        """Take note of the doorbell."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.doorbell)

    # --- its requests -------------------------------------------------------------------------

    def serve(self, open_device: Callable[[], BaseDevice]) -> bool:
        """Answer the requests that wait; returns whether it is still there.

        Raises:
            ProgramError: a request is none.
        """
        for _ in range(_REQUESTS_AT_ONCE):
            try:
                data = self._connection.recv(REQUEST.size + 1)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                return False
            if not data:
                return False
            if len(data) != REQUEST.size:
                raise ProgramError(f"a request of {len(data)} bytes")
            reply, descriptors = self._answer(Request._make(REQUEST.unpack(data)), open_device)
            try:
                self._send(reply, descriptors)
            except (BrokenPipeError, ConnectionResetError):
                return False
            except OSError as error:  # the answers, or descriptors in them, are too many
                raise ProgramError("it does not read its answers") from error
            self._forget_passed()
        return True

    def _send(self, reply: Reply, descriptors: list[int]) -> None:
        data = REPLY.pack(*reply)
        if descriptors:
            socket.send_fds(self._connection, [data], descriptors)
        else:
            self._connection.send(data)

    def _answer(self, request: Request, open_device: Callable[[], BaseDevice]) -> Answer:
        if request.op == Op.OPEN:
            return self._open(request, open_device)
        operation = self._operations.get(request.op)
        if operation is None or self.device is None:
            raise ProgramError(f"request {request.op}")
        try:
            return operation(self.device, request)
        except OSError as error:
            return Reply(error.errno or errno.EINVAL), []

    def _open(self, request: Request, open_device: Callable[[], BaseDevice]) -> Answer:
        if self._events.reader < 0:
            raise ProgramError("it opens the device twice")
        if request.version != VERSION:
            return Reply(errno.EPROTO), []
        descriptors = [self.doorbell, self._events.reader]
        try:
            device = open_device()
            if not self._reaches(request.address, request.cookie):
                own, self._to_thread = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._memory = ThreadMemory(own)
                descriptors.append(self._to_thread.fileno())
        except OSError as error:  # no descriptors are left
            return Reply(error.errno or errno.EIO), []
        self.device = device
        topology, port = device.topology, device.context.port
        reply = Reply(
            guid=_GUID | topology.hosts.index(device.host) + 1,
            rate=round(port.rate_bps * topology.dilation),
            mtu=PAYLOAD_MTU,
            planes=topology.planes,
            gid=port.address,
        )
        return reply, descriptors

    def _reaches(self, address: int, word: int) -> bool:
        """Whether this process may read the program's memory: a word in it has this value."""
        with suppress(OSError):
            return read(self._memory, address, COOKIE.size) == COOKIE.pack(word)
        return False

    def _forget_passed(self) -> None:
        """Close what the last answer has passed on, apart from the doorbell."""
        if self._to_thread is not None:
            self._to_thread.close()
            self._to_thread = None
        for pipe in (self._events, *self._of(Channel)):
            if pipe.reader >= 0:
                pipe.passed()
        rings = [cq.ring for cq in self._cqs.values()]
        for ring in (*rings, *(r for qp in self._qps.values() for r in (qp.sends, qp.receives))):
            if ring.fd >= 0:
                ring.passed()

    def _of(self, kind: type[Any]) -> list[Any]:
        return [each for each in self._objects.values() if isinstance(each, kind)]

    def _add(self, thing: object) -> int:
        self._handles += 1
        self._objects[self._handles] = thing
        return self._handles

    def _require_room(self) -> None:
        if len(self._objects) >= _MOST_OBJECTS:
            raise OSError(errno.ENOMEM, "too many objects")

    def _get(self, kind: type[Any], handle: int) -> Any:
        found = self._objects.get(handle)
        if type(found) is not kind:
            raise OSError(errno.EINVAL, f"{handle} is no {kind.__name__}")
        return found

    def _remove(self, kind: type[Any], handle: int) -> Any:
        found = self._get(kind, handle)
        if getattr(found, "users", 0):
            raise OSError(errno.EBUSY, f"{kind.__name__} is in use")
        del self._objects[handle]
        return found

    # --- memory -------------------------------------------------------------------------------

    def _alloc_pd(self, _device: BaseDevice, _request: Request) -> Answer:
        self._require_room()
        return Reply(handle=self._add(ProtectionDomain())), []

    def _dealloc_pd(self, _device: BaseDevice, request: Request) -> Answer:
        self._remove(ProtectionDomain, request.handle)
        return Reply(), []

    def _reg_mr(self, device: BaseDevice, request: Request) -> Answer:
        pd = self._get(ProtectionDomain, request.handle)
        self._require_room()
        size, end = request.length, 1 << 64
        if not 0 < size <= end - max(request.iova, request.address):
            raise OSError(errno.EINVAL, "a region ends within the address space")
        key = device.context.new_rkey()
        region = ProcessRegion(key, request.iova, size, request.address, self._memory)
        pd.regions[key] = region
        pd.users += 1
        if request.access & IbvAccess.REMOTE_WRITE:
            pd.table.register(region)
        return Reply(handle=self._add((pd, region)), key=key), []

    def _dereg_mr(self, device: BaseDevice, request: Request) -> Answer:
        pd, region = self._remove(tuple, request.handle)
        pd.users -= 1
        del pd.regions[region.rkey]
        with suppress(KeyError):  # peers could not write to it
            pd.table.deregister(region.rkey)
        device.context.free_rkey(region.rkey)
        return Reply(), []

    # --- completion queues --------------------------------------------------------------------

    def _create_channel(self, _device: BaseDevice, _request: Request) -> Answer:
        self._require_room()
        channel = Channel()
        return Reply(handle=self._add(channel)), [channel.reader]

    def _destroy_channel(self, _device: BaseDevice, request: Request) -> Answer:
        self._remove(Channel, request.handle).close()
        return Reply(), []

    def _create_cq(self, _device: BaseDevice, request: Request) -> Answer:
        self._require_room()
        _require_depth(request.depth, MAX_CQE)
        channel = self._get(Channel, request.channel) if request.channel else None
        cq = ProgramCq(request.depth, request.cookie, channel, self._events)
        if channel is not None:
            channel.users += 1
        handle = self._add(cq)
        self._cqs[handle] = cq
        if request.mask:
            self._ev_events[handle] = self._controller.add_queue(cq, request.depth)
        return Reply(handle=handle), [cq.ring.fd]

    def _resize_cq(self, _device: BaseDevice, request: Request) -> Answer:
        _require_depth(request.depth, MAX_CQE)
        cq: ProgramCq = self._get(ProgramCq, request.handle)
        cq.resize(request.depth)
        return Reply(), [cq.ring.fd]

    def _destroy_cq(self, _device: BaseDevice, request: Request) -> Answer:
        cq = self._remove(ProgramCq, request.handle)
        del self._cqs[request.handle]
        events = self._ev_events.pop(request.handle, None)
        if events is not None:
            self._controller.remove_queue(events)
        if cq.channel is not None:
            cq.channel.users -= 1
        cq.close()
        return Reply(), []

    # --- queue pairs --------------------------------------------------------------------------

    def _create_qp(self, device: BaseDevice, request: Request) -> Answer:
        self._require_room()
        for depth in (request.depth, request.recv_depth):
            _require_depth(depth, MAX_DEPTH)
        pd = self._get(ProtectionDomain, request.handle)
        cqs = self._get(ProgramCq, request.send_cq), self._get(ProgramCq, request.recv_cq)
        profiles, controller = QpProfiles(), self._controller
        verbs = device.context.create_qp(
            CompletionQueue(),
            ev_profile=partial(controller.evs.evs_to, profiles),
            cc_profile=partial(controller.congestion, profiles),
        )
        try:
            qp = ProgramQp(
                verbs,
                pd,
                cqs,
                (request.depth, request.recv_depth),
                profiles=profiles,
                cookie=request.cookie,
                signal_all=bool(request.signal_all),
                memory=self._memory,
                events=self._events,
                sent=self._sent,
            )
        except OSError:
            device.context.destroy_qp(verbs)
            raise
        for each in (pd, *cqs):
            each.users += 1
        handle = self._add(qp)
        self._qps[handle] = qp
        return Reply(handle=handle, key=verbs.qp_num), [qp.sends.fd, qp.receives.fd]

    def _modify_qp(self, _device: BaseDevice, request: Request) -> Answer:
        qp: ProgramQp = self._get(ProgramQp, request.handle)
        verbs, mask = qp.verbs, IbvMask(request.mask & ~MODIFY_MRC)
        if IbvMask.ACCESS_FLAGS in mask:
            qp.remote_write = bool(request.access & IbvAccess.REMOTE_WRITE)
        if not mask & IbvMask.STATE:
            return Reply(), []
        state = STATES.get(request.state)
        if state is None:
            raise OSError(errno.EOPNOTSUPP, f"state {request.state}")
        if state is verbs.state and state in (QpState.INIT, QpState.RTS, QpState.ERROR):
            return Reply(), []
        needed = (_NEEDED_BY_MRC if request.mask & MODIFY_MRC else _NEEDED).get(state, IbvMask(0))
        if needed & mask != needed:
            raise OSError(errno.EINVAL, f"{state} needs {needed & ~mask!r}")
        try:
            _change_state(qp, state, request)
        except QpStateError as error:
            raise OSError(errno.EINVAL, str(error)) from error
        except ValueError as error:
            raise OSError(errno.EHOSTUNREACH, str(error)) from error
        if state is QpState.RTR:
            self._controller.evs.connected(qp, self._clock())
        qp.changed(state)
        return Reply(), []

    def _set_mrc(self, _device: BaseDevice, request: Request) -> Answer:
        qp: ProgramQp = self._get(ProgramQp, request.handle)
        if request.length != QP_ATTR.size:
            raise OSError(errno.EINVAL, f"a struct mrc_qp_attr of {request.length} bytes")
        try:
            attributes = MrcAttributes.parse(read(self._memory, request.address, request.length))
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from error
        chosen = attributes.ev_profile, attributes.cc_profile
        if chosen != (qp.profiles.ev, qp.profiles.cc):
            if qp.verbs.core is not None:
                raise OSError(errno.EINVAL, "profiles are chosen before RTR")
            self._controller.choose(qp.profiles, *chosen)
        qp.mrc = attributes
        return Reply(), []

    def _query_qp(self, _device: BaseDevice, request: Request) -> Answer:
        qp = self._get(ProgramQp, request.handle)
        return Reply(state=_IBV_STATES[qp.verbs.state]), []

    def _destroy_qp(self, device: BaseDevice, request: Request) -> Answer:
        qp = self._remove(ProgramQp, request.handle)
        del self._qps[request.handle]
        for each in (qp.pd, *qp.cqs):
            each.users -= 1
        device.context.destroy_qp(qp.verbs)
        qp.close()
        return Reply(), []

    # --- ports --------------------------------------------------------------------------------

    def port_changed(self, plane: int, *, up: bool) -> None:
        """Tell the program that the port of a plane can be used, or not any more."""
        kind = IbvEvent.PORT_ACTIVE if up else IbvEvent.PORT_ERR
        self._events.send(event(0, kind, plane + 1))

    def _query_ports(self, device: BaseDevice, _request: Request) -> Answer:
        every = (1 << device.topology.planes) - 1
        down, disabled = device.context.down_planes, device.context.disabled_planes
        return Reply(state=every & ~_bits(down), key=every & ~_bits(disabled)), []

    def _control(self, _device: BaseDevice, request: Request) -> Answer:
        if request.handle != Call.POLL_EV_EVENTS:
            return self._controller.call(self._memory, self.pid, request, self._clock()), []
        events = self._ev_events.get(request.cookie)
        if events is None:
            raise OSError(errno.EINVAL, f"{request.cookie} is no queue of EV events")
        return events.poll(self._memory, request), []

    # --- what it has sent, and its end --------------------------------------------------------

    def _report(self, device: BaseDevice, _request: Request) -> Answer:
        sent = self._sent
        dilation = round(device.topology.dilation * 1000)
        time_ns = max(sent.last_ns - sent.first_ns, 0)
        late, arrived = device.late & _WORD, device.arrived & _WORD
        return Reply(0, late, arrived, 0, 0, 0, dilation, sent.size, time_ns), []

    def close(self) -> None:
        """Forget everything of it."""
        self._controller.program_ended(self._memory)
        self._memory.forget()
        if self.device is not None:
            for qp in self._qps.values():
                self.device.context.destroy_qp(qp.verbs)
            for _, region in self._of(tuple):
                self.device.context.free_rkey(region.rkey)
        for thing in self._objects.values():
            if isinstance(thing, Closeable):
                thing.close()
        for events in self._ev_events.values():
            self._controller.remove_queue(events)
        self._ev_events.clear()
        self._objects.clear()
        self._qps.clear()
        self._cqs.clear()
        self._events.close()
        os.close(self.doorbell)
        if self.process is not None:
            os.close(self.process)
        self._connection.close()


def _bits(planes: Iterable[int]) -> int:
    return sum(1 << plane for plane in planes)


def _require_depth(depth: int, most: int) -> None:
    if not 1 <= depth <= most or depth & (depth - 1):
        raise OSError(errno.EINVAL, f"a queue of {depth}")


def _change_state(qp: ProgramQp, state: QpState, request: Request) -> None:
    """Change the state of a queue pair, with what the request brings for it.

    Raises:
        OSError: the MTU is none of verbs.
        QpStateError: no such transition.
        ValueError: the peer is not in the fabric, or a number has too many bits.
    """
    verbs = qp.verbs
    if state is QpState.RTR:
        if request.mtu not in _MTUS:
            raise OSError(errno.EINVAL, f"an MTU of {request.mtu}")
        verbs.attributes = QpAttributes(mtu=request.mtu)
        verbs.memory = qp.pd.table if qp.remote_write else MemoryTable()
        verbs.local = replace(verbs.local, capabilities=qp.mrc.own)
        qp.profiles.peer = request.peer
        ends = request.peer, request.peer_qpn, request.peer_psn
        verbs.modify(state, Destination(*ends, qp.mrc.peer))
    elif state is QpState.RTS:
        if request.mask & MODIFY_MRC:
            verbs.attributes = replace(
                verbs.attributes,
                peer_capabilities=qp.mrc.peer,
                linear_retries=qp.mrc.linear_retries,
                exponential_retries=qp.mrc.exponential_retries,
            )
        else:
            verbs.attributes = _with_retries(verbs.attributes, request)
        verbs.modify(state, first_psn=request.first_psn)
    else:
        verbs.modify(state)


def _with_retries(attributes: QpAttributes, request: Request) -> QpAttributes:
    """The retries of verbs in MRC's terms: a timeout of 0 never ends.

    Otherwise the length of a timeout is MRC's own affair: it derives from the measured RTT.
    """
    retries = min(request.retries, MAX_LINEAR_RETRIES)
    if request.timeout == 0:
        return replace(attributes, exponential_retries=MAX_EXPONENTIAL_RETRIES)
    return replace(attributes, linear_retries=retries)
