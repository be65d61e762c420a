"""A run of an EV mode: find the paths, send, have a path die and return, and add up."""

import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path as File
from typing import Any, Final

from pydantic import TypeAdapter

from testbed.emulation.endpoint.clock import now_ns, realtime_offset_ns
from testbed.emulation.endpoint.device import Device
from testbed.emulation.endpoint.nic import PlainEvs
from testbed.emulation.fabric import routes
from testbed.emulation.fabric.capture import LinkCaptures
from testbed.emulation.fabric.fabric import IPV6_HEADER, Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl, LinkCounters
from testbed.model.closeable import Closeable
from testbed.model.errors import InputError, Problem, RunFailedError, raise_any
from testbed.model.fabric.addressing import (
    MOST_UPLINKS,
    PLANE_BITS,
    UPLINK_BITS,
    EvMode,
    Path,
    core_ev,
    flow_label_of_ev,
    nic_address,
    source_port_of_ev,
    structured_path,
)
from testbed.model.fabric.ev_set import EvField, GeneratedProfile, ListedProfile
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.units import NS_PER_S
from testbed.mrc import CompletionStatus, EvEntry, QueuePair
from testbed.mrc.constants import HOP_LIMIT, ROCE_UDP_PORT
from testbed.mrc.verbs import CompletionQueue, VerbsQp, WcOpcode
from testbed.mrc.wire.kinds import WireOptions
from testbed.sandbox.processes import call

# --------------------------------------------------------------------------------------------------
# Which path each EV takes: found by a packet with that EV, and the switches' counters.


_UDP: Final = struct.Struct("!HHHH")
_PAYLOAD: Final = b"a probe "
_POLL_S: Final = 0.0005
_PATIENCE_S: Final = 5.0


def up_directions(fabric: Fabric, src: Node) -> dict[str, Path]:
    """The directions from a host's T0s to the T1s, by name, each with the path that it is of."""
    topology = fabric.topology
    rack = topology.rack(src)
    return {
        topology.fabric_link(plane, rack, t1).directions[0]: Path(plane, t1)
        for plane in range(topology.planes)
        for t1 in range(topology.t1_per_plane)
    }


def offered(counters: LinkCounters, directions: dict[str, Path]) -> dict[Path, int]:
    """The packets of each direction so far, those that a fault or a full queue took included."""
    samples = counters.directions()
    return {
        path: samples[name].packets + samples[name].dropped for name, path in directions.items()
    }


def find_paths(
    fabric: Fabric, src: Node, dst: Node, entries: tuple[EvEntry, ...]
) -> dict[int, Path]:
    """Send a packet with each EV; return the path that it took, by EV. Needs an idle fabric.

    Raises:
        RunFailedError: a packet took no path, or more than one.
    """
    directions, counters = up_directions(fabric, src), fabric.counters()
    topology = fabric.topology
    found: dict[int, Path] = {}
    with ExitStack() as stack:
        with fabric.namespaces[dst.name].entered():  # an open port is answered by no ICMP message
            taken = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        stack.enter_context(taken)
        taken.bind(("::", ROCE_UDP_PORT))
        senders = []
        for plane in range(topology.planes):
            with fabric.namespaces[src.name].entered():
                sender = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
            stack.enter_context(sender)
            port = topology.port_of(src, plane).name.encode()
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, port)
            senders.append(sender)
        before = offered(counters, directions)
        for entry in entries:
            packet = _packet(fabric, src, dst, entry.ev)
            senders[entry.plane].sendto(packet, (str(nic_address(topology, dst)), 0))
            for after in _samples(counters, directions):
                risen = [path for path, count in after.items() if count != before[path]]
                if risen:
                    break
            if len(risen) != 1 or after[risen[0]] != before[risen[0]] + 1:
                taken_paths = ", ".join(path.name for path in risen) or "none"
                raise RunFailedError(f"the EV {entry.ev:#010x} took the paths: {taken_paths}")
            found[entry.ev] = risen[0]
            before = after
    return found


def _samples(counters: LinkCounters, directions: dict[str, Path]) -> Iterator[dict[Path, int]]:
    """Sample until the patience is at its end."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        yield offered(counters, directions)
        if time.monotonic() > end:
            return
        time.sleep(_POLL_S)


def _packet(fabric: Fabric, src: Node, dst: Node, ev: int) -> bytes:
    """A UDP packet that carries an EV as MRC's packets do."""
    size = _UDP.size + len(_PAYLOAD)
    own, peer = (nic_address(fabric.topology, host).packed for host in (src, dst))
    first_word = 6 << 28 | flow_label_of_ev(ev)
    ip = IPV6_HEADER.pack(first_word, size, socket.IPPROTO_UDP, HOP_LIMIT, own, peer)
    return ip + _UDP.pack(source_port_of_ev(ev), ROCE_UDP_PORT, size, 0) + _PAYLOAD


# --------------------------------------------------------------------------------------------------
# What is run: the mode, the fabric, the EVs, and the path that dies.


DILATION: Final = 5000
DEFAULT_ECMP_EVS: Final = 32
_HALF: Final = (1 << 16) - 1


@dataclass(frozen=True)
class Setting:
    """One run.

    Attributes:
        mode: how the fabric reads the path of a packet.
        planes: planes, and ports of each of the two hosts.
        t1s: T1s in each plane, and uplinks of each T0.
        profile: the EVs.
        seed: of the choice of generated EVs.
        dead: the path that dies; None: that of the first EV.
    """

    mode: EvMode
    planes: int
    t1s: int
    profile: ListedProfile
    seed: int
    dead: Path | None = None

    @property
    def topology(self) -> Topology:
        """The fabric: a rack for each of the hosts."""
        return Topology(
            name=f"ev-{self.mode}",
            planes=self.planes,
            t0_per_plane=2,
            t1_per_plane=self.t1s,
            hosts_per_t0=1,
            dilation=DILATION,
        )

    @property
    def entries(self) -> tuple[EvEntry, ...]:
        """The EVs as packets carry them, each with its plane.

        The NIC reads the plane in a structured EV. With ECMP the profile assigns ports in turn, and
        the host does not know which EVs share a path.
        """
        entries = []
        for number, ev in enumerate(self.profile.values(self.seed)):
            structured = self.mode is EvMode.STRUCTURED
            path = structured_path(ev) if structured else Path(number % self.planes, None)
            key = (path.plane, path.t1) if structured else (path.plane, ev)
            entries.append(EvEntry(core_ev(self.mode, ev), path.plane, key, active=True))
        return tuple(entries)

    def check(self, where: str = "--profile") -> None:
        """Refuse what cannot work.

        Raises:
            InputError: an EV has no path, or there is no such path to die.
        """
        raise_any(self._problems(where))
        if len({entry.plane for entry in self.entries}) < self.planes:
            raise InputError.of(where, "", f"EVs in each of the {self.planes} planes")

    def _problems(self, where: str) -> Iterator[Problem]:
        if self.mode is EvMode.STRUCTURED:
            if self.t1s > MOST_UPLINKS:
                remedy = "testbed ev run ecmp takes more: a T0 hashes EVs with one route"
                expected = f"at most {MOST_UPLINKS} T1s in a plane with structured EVs"
                yield Problem("--t1s", str(self.t1s), expected, remedy)
            for ev in self.profile.values(self.seed):
                path = structured_path(ev)
                if not self._exists(path):
                    fields = f"plane {path.plane}, uplink {path.t1}"
                    expected = (
                        f"a plane below {self.planes} in the first {PLANE_BITS} bits and an uplink "
                        f"below {self.t1s} in the next {UPLINK_BITS}"
                    )
                    yield Problem(where, f"the EV {ev:#010x}: {fields}", expected)
                    break
        if self.dead is not None and not self._exists(self.dead):
            expected = f"a path from p0/t1_0 to p{self.planes - 1}/t1_{self.t1s - 1}"
            yield Problem("--dead", self.dead.name, expected)

    def _exists(self, path: Path) -> bool:
        return path.plane < self.planes and path.t1 is not None and path.t1 < self.t1s


def default_profile(mode: EvMode, planes: int, t1s: int) -> GeneratedProfile:
    """With ECMP random EVs; structured EVs one for each path."""
    if mode is EvMode.ECMP:
        halves = (EvField(width=16, mask=_HALF),) * 2
        return GeneratedProfile(evs=DEFAULT_ECMP_EVS, fields=halves)
    fields = (
        EvField(width=PLANE_BITS, max=planes - 1, mask=(1 << PLANE_BITS) - 1),
        EvField(width=UPLINK_BITS, max=t1s - 1, mask=(1 << UPLINK_BITS) - 1),
    )
    return GeneratedProfile(evs=planes * t1s, fields=fields)


# --------------------------------------------------------------------------------------------------
# WRITEs from one host to the other, over devices that this process drives both.


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


# --------------------------------------------------------------------------------------------------
# What a run of an EV mode showed, and whether it shows what it should.


@dataclass(frozen=True, slots=True)
class UsedEv:
    """An EV of the sender.

    Attributes:
        ev: its number, as its mode writes it.
        port: the plane whose port it leaves by.
        path: the path that a packet with it took, from the sender.
        back: the path of a packet with it from the receiver.
        sent: the packets that the sender sent with it.
        condemnations: how often the sender took it out of use for losses.
    """

    ev: int
    port: int
    path: str
    back: str
    sent: int
    condemnations: int


@dataclass(frozen=True, slots=True)
class PathRow:
    """A path in one direction.

    Attributes:
        sender: the host that sends.
        path: its name.
        sent: packets sent with the EVs that take it.
        counted: packets that the fabric's counters have for it.
    """

    sender: str
    path: str
    sent: int
    counted: int


@dataclass(frozen=True, slots=True)
class DeadPath:
    """The path that died, and what the sender did. Times are in base RTTs.

    Attributes:
        path: its name.
        evs: the EVs of the sender on it.
        swallowed: packets that it swallowed.
        left: from the path's death until the last of its EVs had left the active set; None: never.
        returned: from its return until the first of its EVs was active again; None: never.
        others_left: EVs of other paths that were condemned meanwhile.
    """

    path: str
    evs: int
    swallowed: int
    left: float | None
    returned: float | None
    others_left: int


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What was seen.

    Attributes:
        mode: how the fabric read the path of a packet.
        hashes_label: with ECMP, whether the hash took the flow label in.
        evs: the EVs.
        paths: the paths, in both directions.
        dead: the path that died.
        messages: the WRITEs that completed, every byte checked.
        message_bytes: the size of each.
        send_errors: packets that a host's kernel refused.
        base_rtt_s: the base RTT in seconds, as emulated.
    """

    mode: str
    hashes_label: bool
    evs: tuple[UsedEv, ...]
    paths: tuple[PathRow, ...]
    dead: DeadPath
    messages: int
    message_bytes: int
    send_errors: int
    base_rtt_s: float

    @property
    def wrong(self) -> tuple[str, ...]:
        """What should not have happened."""
        mistakes = [
            f"{row.sender}: {row.sent} packets had EVs of {row.path}, "
            f"the fabric counted {row.counted}"
            for row in self.paths
            if row.sent != row.counted
        ]
        if self.dead.left is None:
            mistakes.append(f"the dead path {self.dead.path} was still used at the end")
        if self.dead.returned is None:
            mistakes.append(f"{self.dead.path} was not used again after its return")
        if self.send_errors:
            mistakes.append(f"the kernel refused {self.send_errors} packets")
        return tuple(mistakes)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "wrong": list(self.wrong)}


HEALTHY_RTTS: Final = 20
DEAD_RTTS: Final = 40
RETURNED_RTTS: Final = 80
"""The longest phases, in base RTTs; the path's return ends the last one early."""

_DRAIN_RTTS: Final = 200
_QUIET_RTTS: Final = 3


def run(setting: Setting, captures: File | None = None) -> TrialOutcome:
    """Build the fabric in a sandbox, and run in it.

    Args:
        setting: what to run.
        captures: the directory for a pcapng file of each of the sender's links; None: no files.

    Raises:
        InputError: no EV takes the path that is to die.
        RunFailedError: an EV has no path of its own, or data were lost.
    """
    outcome = call(lambda: asdict(_in_sandbox(setting, captures)))
    return TypeAdapter(TrialOutcome).validate_python(outcome)


def _in_sandbox(setting: Setting, captures: File | None) -> TrialOutcome:
    with Fabric(setting.topology) as fabric:
        fabric.verify()
        fabric.sweep()
        hashes_label = routes.install_plain(fabric.layout, fabric.namespaces, setting.mode)
        here, there = setting.topology.hosts
        paths = find_paths(fabric, here, there, setting.entries)
        back = find_paths(fabric, there, here, setting.entries)
        _check_fields(setting, paths, back)
        with _Trial(fabric, setting, paths, back) as trial, _captured(fabric, captures):
            return trial.run(hashes_label=hashes_label)


def _check_fields(setting: Setting, *directions: Mapping[int, Path]) -> None:
    """Compare the paths of structured EVs with what their fields say.

    Raises:
        RunFailedError: a packet took another one.
    """
    if setting.mode is not EvMode.STRUCTURED:
        return
    for paths in directions:
        for ev, path in paths.items():
            number = core_ev(setting.mode, ev)
            read = structured_path(number)
            if path != read:
                raise RunFailedError(f"the EV {number:#010x} took {path.name}, not {read.name}")


@contextmanager
def _captured(fabric: Fabric, directory: File | None) -> Iterator[None]:
    """Capture the links between the sender's T0s and the T1s, and its own."""
    if directory is None:
        yield
        return
    topology = fabric.topology
    racks = range(topology.t1_per_plane)
    links = [
        *(topology.nic_link(topology.hosts[0], plane) for plane in range(topology.planes)),
        *(topology.fabric_link(p, 0, t1) for p in range(topology.planes) for t1 in racks),
    ]
    files = {link: directory / f"{link.name}.pcapng" for link in links}
    running = LinkCaptures(files, realtime_offset_ns())
    try:
        yield
    finally:
        lost = {name: frames for name, frames in running.stop().items() if frames}
    if lost:
        raise RunFailedError(f"the capture lost frames: {lost}")


class _Trial(Closeable):
    """Both hosts, and what is known of their EVs."""

    def __init__(
        self,
        fabric: Fabric,
        setting: Setting,
        paths: Mapping[int, Path],
        back: Mapping[int, Path],
    ) -> None:
        """Open the devices.

        Raises:
            InputError: no EV takes the path that is to die.
        """
        self._fabric, self._setting = fabric, setting
        self._paths, self._back = paths, back
        self._rtt_ns = setting.topology.propagation_rtt_ns
        self._dead = self._path_to_die()
        self._control = LinkControl(setting.topology, fabric.namespaces)
        self._counters = fabric.counters()
        wire = WireOptions(label_first=setting.mode is not EvMode.STRUCTURED)
        self._evs = [PlainEvs(setting.entries, wire) for _ in setting.topology.hosts]
        self._devices = []
        for host, evs in zip(setting.topology.hosts, self._evs, strict=True):
            with fabric.namespaces[host.name].entered():
                self._devices.append(Device(setting.topology, host, plain=evs))

    def close(self) -> None:
        for device in self._devices:
            device.close()

    def run(self, *, hashes_label: bool) -> TrialOutcome:
        """Send, have a path die and return, and add up."""
        before = [self._offered(number) for number in range(2)]
        traffic = Traffic(*self._devices)
        self._work(traffic, HEALTHY_RTTS)
        dead = self._dead_path(traffic)
        self._finish(traffic)
        listings = {listing.ev: listing for listing in traffic.core.evs()}
        mode, sent = self._setting.mode, self._evs[0].sent
        return TrialOutcome(
            mode=mode.value,
            hashes_label=mode is EvMode.ECMP and hashes_label,
            evs=tuple(
                UsedEv(
                    core_ev(mode, entry.ev),
                    entry.plane,
                    self._paths[entry.ev].name,
                    self._back[entry.ev].name,
                    sent[entry.ev],
                    listings[entry.ev].condemnations,
                )
                for entry in self._setting.entries
            ),
            paths=tuple(row for number in range(2) for row in self._rows(number, before[number])),
            dead=dead,
            messages=traffic.checked,
            message_bytes=MESSAGE_BYTES,
            send_errors=sum(device.send_errors for device in self._devices),
            base_rtt_s=self._rtt_ns / NS_PER_S,
        )

    def _dead_path(self, traffic: Traffic) -> DeadPath:
        """Have a path swallow everything for a while, and see when the sender leaves it."""
        on_it = {ev for ev, path in self._paths.items() if path == self._dead}
        (direction,) = (name for name, path in self._directions(0).items() if path == self._dead)
        condemned = self._condemnations(traffic)
        lost = self._control.tally(direction)["dropped"]
        died_ns, left_ns = now_ns(), None
        self._control.impair(direction, Impairment(blackhole=True))
        while now_ns() < died_ns + DEAD_RTTS * self._rtt_ns:
            traffic.work(busy=True)
            if left_ns is None and not traffic.core.active_evs() & on_it:
                left_ns = now_ns()
        still_left = left_ns is not None and not traffic.core.active_evs() & on_it
        swallowed = self._control.tally(direction)["dropped"] - lost
        others = sum(
            count > condemned[ev]
            for ev, count in self._condemnations(traffic).items()
            if ev not in on_it
        )
        healed_ns, returned_ns = now_ns(), None
        self._control.impair(direction, HEALTHY)
        while returned_ns is None and now_ns() < healed_ns + RETURNED_RTTS * self._rtt_ns:
            traffic.work(busy=True)
            if traffic.core.active_evs() & on_it:
                returned_ns = now_ns()
        return DeadPath(
            self._dead.name,
            len(on_it),
            swallowed,
            self._rtts(died_ns, left_ns if still_left else None),
            self._rtts(healed_ns, returned_ns if still_left else None),
            others,
        )

    def _work(self, traffic: Traffic, rtts: int) -> None:
        end_ns = now_ns() + rtts * self._rtt_ns
        while now_ns() < end_ns:
            traffic.work(busy=True)

    def _finish(self, traffic: Traffic) -> None:
        """Have all WRITEs complete, then send nothing more and wait for what is under way.

        Raises:
            RunFailedError: a WRITE does not complete.
        """
        end_ns = now_ns() + _DRAIN_RTTS * self._rtt_ns
        while not traffic.idle:
            if now_ns() > end_ns:
                raise RunFailedError(f"WRITEs were not complete after {_DRAIN_RTTS} RTT")
            traffic.work(busy=False)
        time.sleep(_QUIET_RTTS * self._rtt_ns / NS_PER_S)

    def _rows(self, number: int, before: Mapping[Path, int]) -> Iterator[PathRow]:
        """The paths from a host: what its EVs say, and what the fabric counted."""
        paths = (self._paths, self._back)[number]
        sent: Counter[Path] = Counter()
        for ev, count in self._evs[number].sent.items():
            sent[paths[ev]] += count
        host = self._setting.topology.hosts[number].name
        for path, count in sorted(self._offered(number).items()):
            yield PathRow(host, path.name, sent[path], count - before[path])

    def _path_to_die(self) -> Path:
        first = self._paths[self._setting.entries[0].ev]
        path = self._setting.dead or first
        if path not in self._paths.values():
            used = ", ".join(sorted({path.name for path in self._paths.values()}))
            raise InputError.of("--dead", path.name, f"a path that an EV takes: {used}")
        return path

    def _condemnations(self, traffic: Traffic) -> dict[int, int]:
        return {listing.ev: listing.condemnations for listing in traffic.core.evs()}

    def _directions(self, number: int) -> dict[str, Path]:
        return up_directions(self._fabric, self._setting.topology.hosts[number])

    def _offered(self, number: int) -> dict[Path, int]:
        return offered(self._counters, self._directions(number))

    def _rtts(self, since_ns: int, time_ns: int | None) -> float | None:
        return None if time_ns is None else round((time_ns - since_ns) / self._rtt_ns, 2)
