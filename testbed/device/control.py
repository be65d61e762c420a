"""What a controller asks of a NIC by OCP's mrc_ctl.h: ports, profiles, EV states, events, probes.

The NIC reads the caller's structures in the caller's memory, and writes what a query returns there.
`testbed ev` and `testbed port` act on the same queue pairs and ports; an order of a controller
counts as one that was given there by hand.
"""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from typing import Final

from testbed.device.abi import QpProfiles
from testbed.device.evs import EventQueue, EvProfiles
from testbed.device.process_memory import Memory
from testbed.device.profiles import (
    ANSWER,
    CC_ATTR,
    DEVICE_ATTR,
    MAX_EVS,
    MAX_PROFILES,
    NSCC,
    PORT_ATTR,
    PROBE,
    SRV6_BITS,
    CcSettings,
    Ev,
    EvMode,
    Format,
    Profile,
    ProfileState,
    given,
    keep,
    load,
    port_of,
    read,
    refuse,
    store,
    within,
    write,
)
from testbed.device.protocol import Call, Reply, Request
from testbed.device.queues import ProgramCq, ProgramQp
from testbed.emulation.endpoint.base_device import BaseDevice
from testbed.model.fabric.addressing import host_of_nic
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.mrc import EvEntry
from testbed.mrc.congestion.control import FixedWindow
from testbed.mrc.congestion.nscc_incast import CcProfile
from testbed.mrc.constants import MAX_MPR, MPR_UNIT
from testbed.mrc.entropy import EvProfile
from testbed.mrc.ev.probing import ProbeBatch
from testbed.mrc.verbs import CompletionQueue, Destination, VerbsQp

_NSCC_NAMES: Final = (
    "disable_qa",
    "adjust_bytes_threshold",
    "adjust_period_threshold",
    "base_rtt",
    "eta",
    "fi",
    "fi_scale",
    "gamma",
    "max_md_jump",
    "max_cwnd",
    "qa_gate",
    "qa_threshold",
    "target_delay",
)
"""The fields of struct mrc_ctl_cc_nscc_cfg, which `CcProfile` has under the same names."""

_STATE, _CUR_STATE, _ALGORITHM, _CONFIG = (1 << bit for bit in range(4))
_ADMIN_STATE: Final = 1
_OPTIONS: Final = 0b110111
"""enum mrc_ctl_attr_opt: all but the one that only ranges are possible."""
_PROTOCOL_VERSION: Final = 1
_CAP_NET_ADMIN: Final = 12
_MAX_PROBES: Final = 4096
_MAX_BATCHES: Final = 64
_WIDEST: Final = MAX_MPR * MPR_UNIT * PAYLOAD_MTU
"""A congestion window that never limits: what the widest responder window takes."""
_MAX_U32: Final = (1 << 32) - 1


def may_control(pid: int) -> bool:
    """Whether a process may control the NIC: it has CAP_NET_ADMIN, or the NIC's own user."""
    with suppress(OSError, ValueError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        values = dict(line.partition(":")[::2] for line in status.splitlines())
        own_user = int(values["Uid"].split()[1]) == os.geteuid() != 0
        return own_user or bool(int(values["CapEff"], 16) >> _CAP_NET_ADMIN & 1)
    return False


@dataclass(frozen=True, slots=True)
class _Probes:
    """A batch of probes under way, on queue pairs of their own.

    Attributes:
        asker: the memory of the program that asked.
        qps: the queue pairs, one for each peer.
        asked: for each request its batch, its EV, its number and its port.
    """

    asker: Memory
    qps: list[VerbsQp]
    asked: list[tuple[ProbeBatch, int, int, int]]


class Controller:
    """What controllers have set of one NIC; it outlives its programs."""

    def __init__(self, qps: Callable[[], Iterable[ProgramQp]]) -> None:
        """Begin as a NIC that no controller has touched.

        Args:
            qps: the queue pairs of all programs.
        """
        self._qps = qps
        self._device: BaseDevice | None = None
        self.evs = EvProfiles(qps)
        self._cc: dict[int, CcSettings] = {}
        self._disabled = frozenset[int]()
        self._probes: dict[int, _Probes] = {}
        self._batches = 0
        self._calls: dict[int, Callable[[Memory, Request, int], Reply]] = {
            Call.QUERY_CONTROL: self._query_device,
            Call.QUERY_PORT: self._query_port,
            Call.MODIFY_PORT: self._modify_port,
            Call.MODIFY_FORMAT: self.evs.modify_format,
            Call.QUERY_FORMAT: self.evs.query_format,
            Call.MODIFY_EVS: self.evs.modify,
            Call.QUERY_EVS: self.evs.query,
            Call.MODIFY_CC: self._modify_cc,
            Call.QUERY_CC: self._query_cc,
            Call.SEND_PROBES: self._send_probes,
            Call.TAKE_PROBES: self._take_probes,
        }

    @property
    def device(self) -> BaseDevice:
        """The NIC, which a program has opened."""
        assert self._device is not None  # noqa: S101 - only programs that have opened it ask
        return self._device

    def attach(self, device: BaseDevice, now_ns: int) -> None:
        """Control a NIC that has just been opened."""
        self._device = self.evs.device = device
        device.observe(self.evs.observe)
        for plane in self._disabled:
            device.switch_port(plane, disabled=True, now_ns=now_ns)

    def detach(self) -> None:
        """The NIC is closed, as no program uses it any more."""
        self._disabled = self.device.context.disabled_planes
        self._device = None
        self._probes.clear()

    def call(self, memory: Memory, pid: int, request: Request, now_ns: int) -> Reply:
        """Carry out a function of mrc_ctl.h.

        Raises:
            OSError: it is refused.
        """
        made = self._calls.get(request.handle)
        if made is None:
            refuse(errno.EINVAL, f"call {request.handle}")
        if request.handle != Call.QUERY_CONTROL and not may_control(pid):
            refuse(errno.EPERM, f"process {pid} lacks CAP_NET_ADMIN")
        return made(memory, request, now_ns)

    def add_queue(self, cq: ProgramCq, depth: int) -> EventQueue:
        """Add a queue of EV events."""
        queue = EventQueue(cq, depth)
        self.evs.queues.append(queue)
        return queue

    def remove_queue(self, queue: EventQueue) -> None:
        """Forget a queue of EV events."""
        self.evs.queues.remove(queue)

    # --- what queue pairs use -----------------------------------------------------------------

    def choose(self, profiles: QpProfiles, ev: int, cc: int) -> None:
        """Have a queue pair use these profiles from RTR on.

        Raises:
            OSError: one of them is not ONLINE.
        """
        found: tuple[Profile, ...] = self.evs.get(ev), self._cc_profile(cc)
        for number, profile in zip((ev, cc), found, strict=True):
            if profile.state is not ProfileState.ONLINE:
                refuse(errno.EINVAL, f"profile {number} is not ONLINE")
        profiles.ev, profiles.cc = ev, cc

    def congestion(self, profiles: QpProfiles, rtt_ns: int) -> CcProfile | FixedWindow:
        """The parameters of a queue pair's CC profile for paths of this round trip.

        Raises:
            ValueError: they cannot work.
        """
        profile = self._cc_profile(profiles.cc)
        if not profile.enabled:
            return FixedWindow(_WIDEST)
        return profile.applied(self.device.context.port.cc_profile(rtt_ns))

    def _cc_profile(self, number: int) -> CcSettings:
        """A CC profile; 0 is the NIC's own, one that nothing is known of is in INIT."""
        return self._cc.get(number, CcSettings()) if number else CcSettings(ProfileState.ONLINE)

    # --- the device and its ports -------------------------------------------------------------

    def _query_device(self, memory: Memory, request: Request, _now_ns: int) -> Reply:
        most = MAX_EVS * MAX_PROFILES
        evs = (MAX_PROFILES, MAX_PROFILES, most, most - self.evs.used, MAX_EVS, 1, SRV6_BITS)
        modes = Format.STEV | Format.SRV6, EvMode.AUTO | EvMode.EXPLICIT | EvMode.GENERATED
        ports = sum(2 << plane for plane in range(self.device.topology.planes))
        values = (_PROTOCOL_VERSION, *evs, *modes, MAX_EVS, MAX_PROFILES, 0, ports, _OPTIONS)
        store(memory, request, DEVICE_ATTR, *values)
        return Reply()

    def _plane(self, request: Request) -> int:
        planes = self.device.topology.planes
        if request.mask != _ADMIN_STATE or not 1 <= request.cookie <= planes:
            refuse(errno.EINVAL, f"port {request.cookie}, expected 1 to {planes}")
        return request.cookie - 1

    def _query_port(self, memory: Memory, request: Request, _now_ns: int) -> Reply:
        plane = self._plane(request)
        store(memory, request, PORT_ATTR, plane not in self.device.context.disabled_planes)
        return Reply()

    def _modify_port(self, memory: Memory, request: Request, now_ns: int) -> Reply:
        plane = self._plane(request)
        (enabled,) = load(memory, request, PORT_ATTR)
        if enabled not in (0, 1):
            refuse(errno.EINVAL, f"port state {enabled}")
        self.device.switch_port(plane, disabled=not enabled, now_ns=now_ns)
        return Reply()

    # --- congestion control -------------------------------------------------------------------

    def _modify_cc(self, memory: Memory, request: Request, _now_ns: int) -> Reply:
        mask, number = request.mask, request.cookie
        state, current, algorithm, config, _ = load(memory, request, CC_ATTR)
        if not number:
            refuse(errno.EINVAL, "profile 0 is the NIC's own")
        profile = replace(self._cc_profile(number))
        state, current = given(mask & _STATE, state), given(mask & _CUR_STATE, current)
        step = profile.check_step(state, current)
        if profile.state is ProfileState.INIT and (step is None or not mask & _ALGORITHM):
            refuse(errno.EINVAL, "a CC profile needs its algorithm, to be OFFLINE")
        if profile.state is ProfileState.ONLINE:
            if mask & _ALGORITHM:
                refuse(errno.EINVAL, "the profile is ONLINE")
            used = any(qp.profiles.cc == number and qp.verbs.core for qp in self._qps())
            if step is not None and used:
                refuse(errno.EBUSY, f"queue pairs use CC profile {number}")
        if mask & _CONFIG and config:
            values = NSCC.unpack(read(memory, config, NSCC.size))
            profile.changes = dict(zip(_NSCC_NAMES, values, strict=True))
            self._check(profile)
        if mask & _ALGORITHM:
            profile.enabled = bool(algorithm)
        profile.state = profile.state if step is None else step
        keep(self._cc, number, profile)
        return Reply()

    def _check(self, profile: CcSettings) -> None:
        """Refuse parameters that cannot work."""
        port = self.device.context.port
        try:
            profile.applied(port.cc_profile(port.base_rtt_ns))
        except ValueError as error:
            refuse(errno.EINVAL, str(error))

    def _query_cc(self, memory: Memory, request: Request, _now_ns: int) -> Reply:
        profile, port = self._cc_profile(request.cookie), self.device.context.port
        config = load(memory, request, CC_ATTR)[3]
        if request.mask & _CONFIG and config:
            used = profile.applied(port.cc_profile(port.base_rtt_ns))
            fields = (min(getattr(used, name), _MAX_U32) for name in _NSCC_NAMES)
            write(memory, config, NSCC.pack(*fields))
        values = profile.state, profile.state, profile.enabled, config, b""
        store(memory, request, CC_ATTR, *values)
        return Reply()

    # --- probes -------------------------------------------------------------------------------

    def _send_probes(self, memory: Memory, request: Request, now_ns: int) -> Reply:
        count = within(request.mask, _MAX_PROBES, least=1)
        if len(self._probes) >= _MAX_BATCHES:
            refuse(errno.EAGAIN, "too many batches of probes are under way")
        data = read(memory, request.address, count * PROBE.size)
        by_peer: dict[bytes, list[tuple[int, int, int]]] = {}
        for number, source, peer, mode, value, port, _ in PROBE.iter_unpack(data):
            if source != self.device.context.port.address:
                refuse(errno.EINVAL, f"request {number} is from another source")
            ev = self._ev_to(peer, mode, Ev(value, port))
            by_peer.setdefault(peer, []).append((ev, number, port))
        probes = _Probes(memory, [], [])
        for peer, asked in by_peer.items():
            qp, batch = self._probe(peer, [ev for ev, *_ in asked], request.cookie, now_ns)
            probes.qps.append(qp)
            probes.asked.extend((batch, *each) for each in asked)
        self._batches += 1
        self._probes[self._batches] = probes
        return Reply(handle=self._batches)

    def _host(self, peer: bytes) -> Node:
        dst = host_of_nic(self.device.topology, IPv6Address(peer))
        if dst is None:
            refuse(errno.EINVAL, f"no NIC has the address {IPv6Address(peer)}")
        return dst

    def _ev_to(self, peer: bytes, mode: int, ev: Ev) -> int:
        """The number of an EV that is to be probed."""
        if mode not in (Format.STEV, Format.SRV6):
            refuse(errno.EINVAL, f"EV format {mode}")
        leads = port_of(ev.value, Format(mode), self.device.topology.planes)
        number = self.evs.number_of(ev, Format(mode), self._host(peer))
        if number is None or leads != ev.port:
            refuse(errno.EINVAL, f"EV {ev.value.hex()} leads elsewhere, or to another port")
        return number

    def _probe(
        self, peer: bytes, evs: Sequence[int], within_ns: int, now_ns: int
    ) -> tuple[VerbsQp, ProbeBatch]:
        """Probe EVs to a peer on a queue pair of their own: none that sends is disturbed."""
        entries = self.evs.entries(dict.fromkeys(evs), self._host(peer))
        profile = partial(_only, EvProfile(entries, adaptive=False))
        qp = self.device.context.create_qp(CompletionQueue(), ev_profile=profile)
        qp.connect(Destination(peer, 0, 0))
        assert qp.core is not None  # noqa: S101 - it has learnt its peer
        return qp, qp.core.probe_evs([entry.ev for entry in entries], within_ns, now_ns)

    def _take_probes(self, memory: Memory, request: Request, now_ns: int) -> Reply:
        probes = self._probes.get(request.cookie)
        if probes is None or probes.asker is not memory:
            refuse(errno.EINVAL, f"no batch {request.cookie}")
        if not all(batch.is_over(now_ns) for batch, *_ in probes.asked):
            return Reply()
        self._end_probes(request.cookie)
        answered = sorted(
            (batch.rtts_ns[ev], number, port)
            for batch, ev, number, port in probes.asked
            if ev in batch.rtts_ns
        )
        answers = [ANSWER.pack(no, port, min(rtt, _MAX_U32), 0) for rtt, no, port in answered]
        write(memory, request.address, b"".join(answers)[: request.length])
        return Reply(state=1, handle=len(answers))

    def _end_probes(self, number: int) -> None:
        for qp in self._probes.pop(number).qps:
            self.device.context.destroy_qp(qp)

    def program_ended(self, memory: Memory) -> None:
        """Forget the probes of a program."""
        for number in [number for number, each in self._probes.items() if each.asker is memory]:
            self._end_probes(number)


def _only(profile: EvProfile, _automatic: tuple[EvEntry, ...]) -> EvProfile:
    return profile
