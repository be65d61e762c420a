"""Open vSwitch inside a sandbox: its daemons, and a bridge whose ports are the ends of wires.

The controller has the bridge patch the two ends of each wire to each other. The bridge fails
secure: without a controller it keeps its flows, and without flows it forwards nothing.

The daemons are started here, with a run directory of their own; no service is started and no
database of the machine is changed. The datapath is the kernel's if it has one, which is found out
by trying, and otherwise Open vSwitch's own in user space. With the kernel's default buffers its
packet sockets lose packets, and only a socket's own drop counter shows it; they are reached with
pidfd_getfd(2).
"""

import contextlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.emulation.fabric.interfaces import SENT_PACKETS, read_counters
from testbed.emulation.fabric.layout import Layout
from testbed.model.errors import MachineError, RunFailedError
from testbed.model.fabric.nodes import Link
from testbed.rights import as_root
from testbed.sandbox.processes import ProcessFailedError, spawn
from testbed.sandbox.system_calls import (
    SO_RCVBUFFORCE,
    SO_SNDBUFFORCE,
    die_with_parent,
    raise_priority,
    system_call,
)

BUFFER_BYTES = 16 << 20

_SO_MEMINFO = 55
_SK_MEMINFO_DROPS = 8
_SK_MEMINFO_WORDS = 9
_SYS_PIDFD_GETFD = 438
_BUFFERS = ((SO_RCVBUFFORCE, socket.SO_RCVBUF), (SO_SNDBUFFORCE, socket.SO_SNDBUF))


def enlarge_buffers(pid: int) -> None:
    """Give every packet socket of a process 16 MiB in each direction.

    Raises:
        RunFailedError: the kernel granted less.
    """
    for sock, _ in _packet_sockets(pid):
        for option, effect in _BUFFERS:
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            size = sock.getsockopt(socket.SOL_SOCKET, effect)
            if size < BUFFER_BYTES:
                raise RunFailedError(f"a packet socket's buffer is {size} bytes")


def dropped_packets(pid: int) -> dict[str, int]:
    """Packets that a process's packet sockets had no room for so far, by interface."""
    drops: dict[str, int] = {}
    for sock, interface in _packet_sockets(pid):
        if interface:
            words = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * _SK_MEMINFO_WORDS)
            name = socket.if_indextoname(interface)
            drops[name] = drops.get(name, 0) + struct.unpack("9I", words)[_SK_MEMINFO_DROPS]
    return drops


def _packet_sockets(pid: int) -> Iterator[tuple[socket.socket, int]]:
    """Yield a process's packet sockets in this namespace, with the indexes of their interfaces."""
    interfaces: dict[str, int] = {}
    for line in Path("/proc/net/packet").read_text(encoding="utf-8").splitlines()[1:]:
        _, _, _, _, interface, _, _, _, inode = line.split()
        interfaces[f"socket:[{inode}]"] = int(interface)
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except FileNotFoundError:
                continue  # it has been closed
            if target in interfaces:
                number = int(entry.name)
                copy = system_call("pidfd_getfd", pidfd, number, 0, number=_SYS_PIDFD_GETFD)
                with socket.socket(fileno=copy) as sock:
                    yield sock, interfaces[target]
    finally:
        os.close(pidfd)


# --------------------------------------------------------------------------------------------------
# OpenFlow wires: the links that run through Open vSwitch.
#
#     p0_t0_0 ----- w0a [ bridge `wires` ] w0b ----- p0_t1_1       wire 0: OpenFlow ports 1 and 2
#
# A wire is a link cut in two: each of its nodes has one end of a veth pair, and the bridge has the
# other ends.


MAX_USERSPACE_WIRES = 4
"""Wires that one thread of the user-space datapath can carry besides its other work."""


@dataclass(frozen=True, slots=True)
class OpenFlowWire:
    """A link that runs through the bridge.

    Attributes:
        link: the link.
        ends: the interfaces at the bridge: the lower node's, then the upper node's.
        ports: their OpenFlow port numbers.
    """

    link: Link
    ends: tuple[str, str]
    ports: tuple[int, int]


def wires_of(layout: Layout) -> tuple[OpenFlowWire, ...]:
    """The wires of a fabric, in the order of their numbers."""
    wires = []
    for index, name in enumerate(layout.wires):
        lower, upper = layout.wire_ends(name)
        link = layout.topology.links[name]
        wires.append(OpenFlowWire(link, (lower.name, upper.name), (2 * index + 1, 2 * index + 2)))
    return tuple(wires)


def forwarded_packets(wire: OpenFlowWire) -> tuple[int, int]:
    """Packets that the bridge has sent so far to the lower and to the upper node."""
    counters = read_counters()
    lower, upper = wire.ends
    return counters[lower][SENT_PACKETS], counters[upper][SENT_PACKETS]


BRIDGE = "wires"
DATAPATHS = ("system", "netdev")
"""Open vSwitch's names for the kernel's datapath and its own in user space; tried in order."""

CACHED_DECISIONS = {"system": 200_000, "netdev": 0}
"""How many forwarding decisions a datapath may cache (`flow-limit`). The kernel's has to ask a
daemon about packets for which it has none, so it keeps Open vSwitch's default. That in user space
looks into the flow tables itself; without a cache, a change of them holds from the barrier on."""

RUN_DIRECTORY = Path("/run/openvswitch")
"""Directory for the database and sockets, in the sandbox's private /run."""

START_TIMEOUT_S = 30.0
"""Long enough for a busy machine; an idle one needs 0.3 s."""

CHECK_S = 0.1
"""How often to check, while waiting for an answer, that the daemons are alive."""

REMEDY = "apt install openvswitch-switch (its service need not run)"

_PROGRAMS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl")
_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_LOCAL_PORT = 0xFFFE


def find_programs() -> tuple[dict[str, str], list[str]]:
    """Return Open vSwitch's programs, path by name, and the names of those that are missing."""
    search_path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # Debian's place for daemons
    paths = {name: shutil.which(name, path=search_path) for name in _PROGRAMS}
    programs = {name: path for name, path in paths.items() if path is not None}
    return programs, [name for name in _PROGRAMS if name not in programs]


def control_socket(run_directory: Path, daemon: str) -> Path:
    return run_directory / f"{daemon}.ctl"


class OpenVSwitch:
    """The two daemons and the bridge; made by `start`, in the sandbox's root network namespace.

    Attributes:
        datapath: the datapath in use, one of `DATAPATHS`.
    """

    def __init__(
        self, run_directory: Path, log_directory: Path, datapaths: Sequence[str] = DATAPATHS
    ) -> None:
        """Find the programs; `start` starts them.

        Raises:
            MachineError: Open vSwitch is not installed.
        """
        self.datapath = ""
        self._datapaths = datapaths
        self._run_directory = run_directory
        self._log_directory = log_directory
        self._database = run_directory / "db.sock"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._programs, missing = find_programs()
        if missing:
            raise MachineError(f"Open vSwitch is not installed: no {', '.join(missing)}", REMEDY)

    @classmethod
    def start(
        cls,
        wires: Sequence[OpenFlowWire],
        log_directory: Path,
        run_directory: Path = RUN_DIRECTORY,
        datapaths: Sequence[str] = DATAPATHS,
    ) -> Self:
        """Start the daemons and make the bridge with every wire's ends as ports.

        Args:
            wires: the wires; their ends must be up and leave no checksum for a device to fill in.
            log_directory: directory for the daemons' logs.
            run_directory: directory for the database and sockets.
            datapaths: the datapaths to try, the preferred one first.

        Raises:
            MachineError: Open vSwitch is not installed, or does not run here.
        """
        switch = cls(run_directory, log_directory, datapaths)
        run_directory.mkdir(parents=True, exist_ok=True)
        try:
            switch._start_database()
            switch.start_vswitchd()
            switch._make_bridge(wires)
            enlarge_buffers(switch.pid)
        except BaseException:
            switch.stop()
            raise
        return switch

    # --- daemons --------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        directories = {
            f"OVS_{name}DIR": str(self._run_directory) for name in ("RUN", "DB", "SYSCONF")
        }
        return os.environ | directories | {"OVS_LOGDIR": str(self._run_directory)}

    def _launch(self, name: str, *arguments: str) -> None:
        parent = os.getpid()
        # Opened here: a daemon would write as root where the directory of the run is another's.
        with (self._log_directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - fixed arguments
                [
                    self._programs[name],
                    *arguments,
                    "--no-chdir",
                    f"--unixctl={control_socket(self._run_directory, name)}",
                    "-vconsole:info",
                    "-vsyslog:off",
                ],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: _prepare_daemon(parent),  # noqa: PLW1509 - no lock is taken
            )

    def _start_database(self) -> None:
        database = self._run_directory / "conf.db"
        self._run("ovsdb-tool", "create", str(database), str(_SCHEMA), remedy=REMEDY)
        self._launch("ovsdb-server", str(database), f"--remote=punix:{self._database}")
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._database.exists():
            self.check()
            if time.monotonic() > deadline:
                raise MachineError("ovsdb-server does not answer", self._see_log("ovsdb-server"))
            time.sleep(0.001)

    def start_vswitchd(self) -> None:
        """Start ovs-vswitchd, which makes what the database describes, with an empty flow table."""
        self._launch("ovs-vswitchd", f"unix:{self._database}")

    def _see_log(self, name: str) -> str:
        return f"see {self._log_directory / name}.log"

    @property
    def pid(self) -> int:
        """The process ID of ovs-vswitchd."""
        return self.pids["ovs-vswitchd"]

    @property
    def pids(self) -> dict[str, int]:
        """The process IDs of both daemons, by name."""
        return {name: process.pid for name, process in self._processes.items()}

    def check(self) -> None:
        """Check that the daemons are alive.

        Raises:
            RunFailedError: a daemon has ended.
        """
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None:
                raise RunFailedError(f"{name} ended with {status}: {self._see_log(name)}")

    def stop(self) -> None:
        """Kill the daemons, as the end of the sandbox does."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()

    # --- bridge ---------------------------------------------------------------------------

    def _vsctl(self, *arguments: str) -> str:
        options = (f"--db=unix:{self._database}", f"--timeout={START_TIMEOUT_S:.0f}")
        return self._run("ovs-vsctl", *options, *arguments, remedy=self._see_log("ovs-vswitchd"))

    def _run(self, name: str, *arguments: str, remedy: str) -> str:
        with subprocess.Popen(  # noqa: S603 - fixed arguments
            [self._programs[name], *arguments],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as client:
            try:
                output, errors = self._communicate(client)
            except BaseException:
                client.kill()
                raise
        if client.returncode:
            self.check()
            raise MachineError(f"{name}: {errors.strip()}", remedy)
        return output

    def _communicate(self, client: subprocess.Popen[str]) -> tuple[str, str]:
        """Wait for a client's output and errors, as long as the daemons are alive."""
        while True:
            try:
                return client.communicate(timeout=CHECK_S)
            except subprocess.TimeoutExpired:
                self.check()

    def _make_bridge(self, wires: Sequence[OpenFlowWire]) -> None:
        ends = [pair for wire in wires for pair in zip(wire.ends, wire.ports, strict=True)]
        ports = [
            f"-- add-port {BRIDGE} {end} -- set interface {end} ofport_request={port}"
            for end, port in ends
        ]
        expected: dict[str, int] = {BRIDGE: _LOCAL_PORT, **dict(ends)}
        problem = ""
        for datapath in self._datapaths:
            self._vsctl(
                *f"init -- set open . other_config:flow-limit={CACHED_DECISIONS[datapath]}"
                f" -- --if-exists del-br {BRIDGE} -- add-br {BRIDGE}"
                f" -- set bridge {BRIDGE} datapath_type={datapath} fail_mode=secure"
                " protocols=OpenFlow13 other_config:disable-in-band=true"
                f" {' '.join(ports)}".split()
            )
            problem = self._port_problem(expected)
            if not problem:
                self.datapath = datapath
                return
        raise MachineError(
            f"Open vSwitch cannot make its bridge: {problem}", self._see_log("ovs-vswitchd")
        )

    def _port_problem(self, expected: dict[str, int]) -> str:
        """Describe the first port that the bridge lacks or numbers differently, if there is one."""
        listed = self._vsctl("--format=json", "--columns=name,ofport,error", "list", "interface")
        actual = {name: (port, error) for name, port, error in json.loads(listed)["data"]}
        for name, number in expected.items():
            if name not in actual or actual[name][0] != number:
                return f"{name} is not port {number}, but {actual.get(name, 'not there')}"
        return ""

    def connect(self, port: int) -> None:
        """Point the bridge at a controller that listens on this TCP port of the loopback.

        If nobody listens, the bridge tries again a second later.
        """
        self._vsctl(
            *f"set-controller {BRIDGE} tcp:127.0.0.1:{port}"
            f" -- set controller {BRIDGE} connection_mode=out-of-band max_backoff=1000".split()
        )

    # --- packet sockets of the user-space datapath ----------------------------------------

    def packet_drops(self) -> dict[str, int]:
        """Packets that the user-space datapath's sockets had no room for so far, by wire end.

        No fault causes them. Empty with the kernel's datapath.
        """
        return dropped_packets(self.pid)


def _prepare_daemon(parent: int) -> None:
    die_with_parent(parent)
    with contextlib.suppress(PermissionError):
        raise_priority()  # the same as for endpoints, so that wires and faults are not late


_TIMEOUT_S = 2.0


class FlowCache:
    """The decisions that the datapath has derived from the flow tables and still uses.

    OpenFlow's barrier confirms that the flow tables have changed. A datapath that caches decisions
    revalidates them only milliseconds later.

    Attributes:
        is_used: whether the datapath caches any; assumed until `query`.
    """

    def __init__(self, run_directory: Path = RUN_DIRECTORY) -> None:
        """Take Open vSwitch's run directory; nothing is queried yet."""
        self._control = control_socket(run_directory, "ovs-vswitchd")
        self.is_used = True

    def query(self) -> None:
        """Ask ovs-vswitchd, which has just started or connected, whether it caches decisions.

        Raises:
            RunFailedError: it did not answer in time, or its answer has no limit of flows.
        """
        answer = self._command("upcall/show")
        limits = re.findall(r"\(limit (\d+)\)", answer)
        if not limits:
            raise RunFailedError(f"ovs-vswitchd did not report its limit of flows: {answer}")
        self.is_used = any(int(limit) for limit in limits)

    def purge(self) -> bool:
        """Make the flow tables hold for every later packet; returns whether that took a purge.

        Raises:
            RunFailedError: ovs-vswitchd refused or did not answer in time.
        """
        if self.is_used:
            self._command("revalidator/purge")
        return self.is_used

    def _command(self, method: str) -> str:
        """Send a command to ovs-vswitchd; returns its answer, as `ovs-appctl` prints it."""
        request = {"id": 0, "method": method, "params": []}
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(_TIMEOUT_S)
                with as_root():  # whose socket it is
                    sock.connect(str(self._control))
                sock.sendall(json.dumps(request).encode())
                answer = _receive_json(sock)
        except OSError as error:
            raise RunFailedError(
                f"ovs-vswitchd does not answer on {self._control}: {error}"
            ) from error
        if answer.get("error") is not None:
            raise RunFailedError(f"ovs-vswitchd: {answer['error']}")
        return str(answer.get("result"))


def _receive_json(sock: socket.socket) -> dict[str, object]:
    received = b""
    while chunk := sock.recv(4096):
        received += chunk
        with contextlib.suppress(json.JSONDecodeError):
            answer = json.loads(received)
            if isinstance(answer, dict):
                return answer
    raise ConnectionError("closed before the answer was complete")


@dataclass(frozen=True, slots=True)
class Availability:
    """The result of starting Open vSwitch.

    Attributes:
        datapath: `system` (the kernel's) or `netdev` (user space); None if it does not run here.
        reason: why it does not.
        remedy: what to do about it.
    """

    datapath: str | None
    reason: str = ""
    remedy: str = ""


def available(datapaths: Sequence[str] = DATAPATHS) -> Availability:
    """Find out whether Open vSwitch runs here. Takes about 0.3 s and needs root.

    Args:
        datapaths: the datapaths to try, the preferred one first.
    """
    with trial(datapaths) as answer:
        return answer()


@contextmanager
def trial(datapaths: Sequence[str] = DATAPATHS) -> Iterator[Callable[[], Availability]]:
    """Find out the same while the block does something else.

    Yields a function that waits for the answer; call it once at most, in the block. If it is not
    called, the trial ends with the block.
    """
    missing = find_programs()[1]
    if missing:
        yield lambda: Availability(None, f"not installed: no {', '.join(missing)}", REMEDY)
        return
    with spawn(lambda _: _try_to_start(datapaths)) as sandbox:

        def answer() -> Availability:
            try:
                return Availability(*sandbox.result())
            except ProcessFailedError:
                return Availability(None, "namespaces cannot be made", "run as root")

        yield answer


def _try_to_start(datapaths: Sequence[str]) -> tuple[str | None, ...]:
    """Start it, with logs in the sandbox's private /run; returns the fields of `Availability`."""
    directory = RUN_DIRECTORY.parent
    try:
        return (OpenVSwitch.start((), directory, datapaths=datapaths).datapath,)
    except (MachineError, RunFailedError, OSError) as error:
        return None, str(error).split("\n", maxsplit=1)[0], _last_complaint(directory)


def _last_complaint(log_directory: Path) -> str:
    lines = [
        line
        for log in log_directory.glob("*.log")
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if "|ERR|" in line or "|WARN|" in line
    ]
    return f"ovs-vswitchd says: {lines[-1]}" if lines else REMEDY
