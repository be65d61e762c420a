"""A run of an EV mode: find the paths, send, have a path die and return, and add up."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path as File
from typing import Final

from testbed.emulation.endpoint.clock import now_ns, realtime_offset_ns
from testbed.emulation.endpoint.device import Device
from testbed.emulation.endpoint.plain_nic import PlainEvs
from testbed.emulation.ev_modes.found_paths import find_paths, offered, up_directions
from testbed.emulation.ev_modes.outcome import DeadPath, PathRow, TrialOutcome, UsedEv
from testbed.emulation.ev_modes.setting import Setting
from testbed.emulation.ev_modes.traffic import MESSAGE_BYTES, Traffic
from testbed.emulation.fabric import plain_routes
from testbed.emulation.fabric.capture import LinkCaptures
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.closeable import Closeable
from testbed.model.errors import InputError, RunFailedError
from testbed.model.fabric.addressing import Path
from testbed.model.fabric.ev_mode import EvMode, core_ev, structured_path
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.units import NS_PER_S
from testbed.mrc.wire.options import WireOptions
from testbed.sandbox.processes import call

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
    return TrialOutcome.of(call(lambda: asdict(_in_sandbox(setting, captures))))


def _in_sandbox(setting: Setting, captures: File | None) -> TrialOutcome:
    with Fabric(setting.topology) as fabric:
        fabric.verify()
        fabric.sweep()
        hashes_label = plain_routes.install(fabric.layout, fabric.namespaces, setting.mode)
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
        """Close the devices."""
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
