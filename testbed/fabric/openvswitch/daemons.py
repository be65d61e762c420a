"""Open vSwitch inside a sandbox: a bridge whose ports are the ends of OpenFlow wires.

    p0_t0_0 ----- w0a [ bridge `wires` ] w0b ----- p0_t1_1       wire 0: OpenFlow ports 1 and 2

A wire is a link cut open: each of its nodes holds one end of a veth pair, the bridge holds the
other ends and, told so by the controller, patches them to each other. The bridge fails secure:
without a controller it keeps the flows it has, without flows it forwards nothing.

The daemons are started by hand with their own run directory; no service is started and no database
of the machine touched. The datapath is the kernel's where it has one, found out by trying, and
otherwise Open vSwitch's own in user space, whose packet sockets are given larger buffers from
outside (pidfd_getfd(2)): with the kernel's default they lose packets where only the socket's own
drop counter shows it.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.fabric.layout import Layout
from testbed.fabric.netlink.socket import SO_RCVBUFFORCE, SO_SNDBUFFORCE
from testbed.model.errors import MachineError, RunFailedError
from testbed.model.fabric.nodes import Link
from testbed.sandbox.attributes import die_with_parent, raise_priority
from testbed.sandbox.processes import ProcessFailedError, spawn

BRIDGE = "wires"
DATAPATHS = ("system", "netdev")
"""Open vSwitch's names for the kernel's datapath and its own in user space; tried in order."""

DECISIONS_KEPT = {"system": 200_000, "netdev": 0}
"""How many forwarding decisions a datapath may keep (`flow-limit`). The kernel's asks a daemon
about packets for which it has none: it keeps Open vSwitch's default. That in user space looks into
the flow tables itself; as it keeps none, a change of them holds from the barrier on."""

MAX_USERSPACE_WIRES = 4
"""Wires that one thread of the user-space datapath carries besides everything else."""

RUN_DIRECTORY = Path("/run/openvswitch")
"""In the sandbox's private /run: database, sockets."""

PACKET_BUFFER_BYTES = 16 << 20
START_TIMEOUT_S = 30.0
"""For a machine that is busy with other things; it takes 0.3 s on one that is not."""

CHECK_S = 0.1
"""How often it is looked meanwhile whether the daemons live."""

REMEDY = "apt install openvswitch-switch (its service need not run)"

_PROGRAMS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl")
_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")

_SO_MEMINFO = 55
_SK_MEMINFO_DROPS = 8
_SK_MEMINFO_WORDS = 9
_SYS_PIDFD_GETFD = 438
_LOCAL_PORT = 0xFFFE
_DEV_TRANSMITTED = 9  # column of /proc/net/dev


@dataclass(frozen=True, slots=True)
class Wire:
    """A link that runs through the bridge.

    Attributes:
        link: the link that it is.
        ends: the interfaces at the bridge: the lower node's, then the upper node's.
        ports: their OpenFlow port numbers.
    """

    link: Link
    ends: tuple[str, str]
    ports: tuple[int, int]


def wires_of(layout: Layout) -> tuple[Wire, ...]:
    """The wires of a fabric, in the order of their numbers."""
    wires = []
    for index, name in enumerate(layout.wires):
        lower, upper = layout.wire_ends(name)
        link = layout.topology.links[name]
        wires.append(Wire(link, (lower.name, upper.name), (2 * index + 1, 2 * index + 2)))
    return tuple(wires)


def forwarded_packets(wire: Wire) -> tuple[int, int]:
    """Packets that the bridge has sent so far to the lower and to the upper node."""
    counters = {}
    for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, _, columns = line.partition(":")
        counters[name.strip()] = int(columns.split()[_DEV_TRANSMITTED])
    lower, upper = wire.ends
    return counters[lower], counters[upper]


# --- the switch -------------------------------------------------------------------------------


class OpenVSwitch:
    """The two daemons and the bridge; made by `start`, in the sandbox's root network namespace."""

    def __init__(self, run_directory: Path, log_directory: Path) -> None:
        """Name the directories; `start` is what starts."""
        self.datapath = ""
        self._datapaths: Sequence[str] = DATAPATHS
        self._run_directory = run_directory
        self._log_directory = log_directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    def start(
        cls,
        wires: Sequence[Wire],
        log_directory: Path,
        run_directory: Path = RUN_DIRECTORY,
        datapaths: Sequence[str] = DATAPATHS,
    ) -> Self:
        """Start the daemons and make the bridge with every wire's ends as ports.

        Args:
            wires: whose ends are there and up, with no checksum left for a device to fill in.
            log_directory: where the daemons' logs go.
            run_directory: for database and sockets.
            datapaths: which to try, the preferred one first.

        Raises:
            MachineError: Open vSwitch is not there, or does not run here.
        """
        switch = cls(run_directory, log_directory)
        switch._datapaths = datapaths
        missing = [name for name in _PROGRAMS if _program(name) is None]
        if missing:
            raise MachineError(f"Open vSwitch is not installed: no {', '.join(missing)}", REMEDY)
        run_directory.mkdir(parents=True, exist_ok=True)
        try:
            switch._start_database()
            switch.start_vswitchd()
            switch._make_bridge(wires)
            switch.enlarge_packet_buffers()
        except BaseException:
            switch.stop()
            raise
        return switch

    # --- daemons --------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        directories = {
            f"OVS_{name}DIR": str(self._run_directory) for name in ("RUN", "DB", "SYSCONF")
        }
        return os.environ | directories | {"OVS_LOGDIR": str(self._log_directory)}

    def _launch(self, name: str, *arguments: str) -> None:
        parent = os.getpid()
        self._processes[name] = subprocess.Popen(  # noqa: S603 - the arguments are ours
            [
                _found(name),
                *arguments,
                "--no-chdir",
                f"--unixctl={_control_socket(self._run_directory, name)}",
                "-vconsole:off",
                "-vsyslog:off",
                f"--log-file={self._log_directory / name}.log",
            ],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: _begin(parent),  # noqa: PLW1509 - no lock is taken
        )

    @property
    def _database(self) -> Path:
        return self._run_directory / "db.sock"

    def _start_database(self) -> None:
        database = self._run_directory / "conf.db"
        created = subprocess.run(  # noqa: S603 - the arguments are ours
            [_found("ovsdb-tool"), "create", str(database), str(_SCHEMA)],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if created.returncode:
            raise MachineError(f"ovsdb-tool: {created.stderr.strip()}", REMEDY)
        self._launch("ovsdb-server", str(database), f"--remote=punix:{self._database}")
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._database.exists():
            self.check()
            if time.monotonic() > deadline:
                raise MachineError("ovsdb-server does not answer", self._see_log("ovsdb-server"))
            time.sleep(0.001)

    def start_vswitchd(self) -> None:
        """Start ovs-vswitchd; it makes what the database describes, with an empty flow table."""
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
            RunFailedError: one has ended.
        """
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None:
                raise RunFailedError(f"{name} ended with {status}: {self._see_log(name)}")

    def stop(self) -> None:
        """End the daemons, as the end of the sandbox does."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()

    # --- bridge ---------------------------------------------------------------------------

    def _vsctl(self, *arguments: str) -> str:
        command = [
            _found("ovs-vsctl"),
            f"--db=unix:{self._database}",
            f"--timeout={START_TIMEOUT_S:.0f}",
            *arguments,
        ]
        with subprocess.Popen(  # noqa: S603 - the arguments are ours
            command,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as asking:
            try:
                output, complaint = self._answer(asking)
            except BaseException:
                asking.kill()
                raise
        if asking.returncode:
            self.check()
            raise MachineError(f"ovs-vsctl: {complaint.strip()}", self._see_log("ovs-vswitchd"))
        return output

    def _answer(self, asking: subprocess.Popen[str]) -> tuple[str, str]:
        """What a client prints and complains of; not waited for once a daemon has ended."""
        while True:
            try:
                return asking.communicate(timeout=CHECK_S)
            except subprocess.TimeoutExpired:
                self.check()

    def _make_bridge(self, wires: Sequence[Wire]) -> None:
        ends = [pair for wire in wires for pair in zip(wire.ends, wire.ports, strict=True)]
        ports = [
            f"-- add-port {BRIDGE} {end} -- set interface {end} ofport_request={port}"
            for end, port in ends
        ]
        wanted: dict[str, int] = {BRIDGE: _LOCAL_PORT, **dict(ends)}
        problem = ""
        for datapath in self._datapaths:
            self._vsctl(
                *f"init -- set open . other_config:flow-limit={DECISIONS_KEPT[datapath]}"
                f" -- --if-exists del-br {BRIDGE} -- add-br {BRIDGE}"
                f" -- set bridge {BRIDGE} datapath_type={datapath} fail_mode=secure"
                " protocols=OpenFlow13 other_config:disable-in-band=true"
                f" {' '.join(ports)}".split()
            )
            problem = self._port_problem(wanted)
            if not problem:
                self.datapath = datapath
                return
        raise MachineError(
            f"Open vSwitch cannot make its bridge: {problem}", self._see_log("ovs-vswitchd")
        )

    def _port_problem(self, wanted: dict[str, int]) -> str:
        listed = self._vsctl("--format=json", "--columns=name,ofport,error", "list", "interface")
        found = {name: (port, error) for name, port, error in json.loads(listed)["data"]}
        for name, number in wanted.items():
            if name not in found or found[name][0] != number:
                return f"{name} is not port {number}, but {found.get(name, 'not there')}"
        return ""

    def connect(self, port: int) -> None:
        """Point the bridge at a controller that listens on this TCP port of the loopback.

        Where nobody listens, the next try comes a second later.
        """
        self._vsctl(
            *f"set-controller {BRIDGE} tcp:127.0.0.1:{port}"
            f" -- set controller {BRIDGE} connection_mode=out-of-band max_backoff=1000".split()
        )

    # --- packet sockets of the user-space datapath ----------------------------------------

    def enlarge_packet_buffers(self) -> int:
        """Give every packet socket of the user-space datapath 16 MiB each way; how many there are.

        Raises:
            RunFailedError: the kernel took less.
        """
        count = 0
        for sock, _ in _packet_sockets(self.pid):
            for option, effect in (
                (SO_RCVBUFFORCE, socket.SO_RCVBUF),
                (SO_SNDBUFFORCE, socket.SO_SNDBUF),
            ):
                sock.setsockopt(socket.SOL_SOCKET, option, PACKET_BUFFER_BYTES)
                got = sock.getsockopt(socket.SOL_SOCKET, effect)
                if got < PACKET_BUFFER_BYTES:
                    raise RunFailedError(f"a packet socket's buffer is {got} bytes")
            count += 1
        return count

    def packet_drops(self) -> dict[str, int]:
        """Packets that the user-space datapath's sockets had no room for, by wire end.

        Cumulative; none is due to a fault. Empty with the kernel's datapath.
        """
        drops: dict[str, int] = {}
        for sock, interface in _packet_sockets(self.pid):
            if interface:
                words = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * _SK_MEMINFO_WORDS)
                name = socket.if_indextoname(interface)
                drops[name] = drops.get(name, 0) + struct.unpack("9I", words)[_SK_MEMINFO_DROPS]
        return drops


def _begin(parent: int) -> None:
    die_with_parent(parent)
    with contextlib.suppress(PermissionError):
        raise_priority()  # packets on wires go on, and faults take effect, as at endpoints


def _packet_sockets(pid: int) -> Iterator[tuple[socket.socket, int]]:
    """Every packet socket of a process in this network namespace, with its interface's index."""
    interfaces: dict[str, int] = {}
    for line in Path("/proc/net/packet").read_text().splitlines()[1:]:
        _, _, _, _, interface, _, _, _, inode = line.split()
        interfaces[f"socket:[{inode}]"] = int(interface)
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except FileNotFoundError:
                continue  # closed since
            if target in interfaces:
                with socket.socket(fileno=_descriptor_of(pidfd, int(entry.name))) as sock:
                    yield sock, interfaces[target]
    finally:
        os.close(pidfd)


def _descriptor_of(pidfd: int, number: int) -> int:
    fd = ctypes.CDLL(None, use_errno=True).syscall(_SYS_PIDFD_GETFD, pidfd, number, 0)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"pidfd_getfd: {os.strerror(code)}")
    return int(fd)


def _control_socket(run_directory: Path, name: str) -> Path:
    return run_directory / f"{name}.ctl"


class DecisionCache:
    """What the datapath has worked out from the flow tables, and goes on using.

    OpenFlow's barrier says that the flow tables have changed; a datapath that keeps decisions looks
    again only milliseconds later.

    Attributes:
        is_used: whether any are kept; they are taken to be until `look`.
    """

    def __init__(self, run_directory: Path = RUN_DIRECTORY) -> None:
        """Open vSwitch's run directory; nothing is asked yet."""
        self._run_directory = run_directory
        self.is_used = True

    def look(self) -> None:
        """Ask ovs-vswitchd, which has just started or connected, whether any are kept.

        Raises:
            RunFailedError: it did not answer in time, or not what was asked.
        """
        answer = _command(self._run_directory, "upcall/show")
        limits = re.findall(r"\(limit (\d+)\)", answer)
        if not limits:
            raise RunFailedError(f"ovs-vswitchd tells no limit of flows: {answer}")
        self.is_used = any(int(limit) for limit in limits)

    def purge(self) -> bool:
        """Have the flow tables hold for every later packet; whether anything had to be done.

        Raises:
            RunFailedError: ovs-vswitchd refused or did not answer in time.
        """
        if self.is_used:
            _command(self._run_directory, "revalidator/purge")
        return self.is_used


def _command(run_directory: Path, method: str, timeout_s: float = 2.0) -> str:
    """What ovs-vswitchd answers to a command, as `ovs-appctl` prints it."""
    control = _control_socket(run_directory, "ovs-vswitchd")
    request = {"id": 0, "method": method, "params": []}
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(timeout_s)
            sock.connect(str(control))
            sock.sendall(json.dumps(request).encode())
            answer = _receive_json(sock)
    except OSError as error:
        raise RunFailedError(f"ovs-vswitchd does not answer on {control}: {error}") from error
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


# --- is it there? -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Availability:
    """What trying Open vSwitch here showed.

    Attributes:
        datapath: `system` (the kernel's) or `netdev` (user space); None if it does not run here.
        reason: why it does not.
        remedy: what to do about it.
    """

    datapath: str | None
    reason: str = ""
    remedy: str = ""


def available(datapaths: Sequence[str] = DATAPATHS) -> Availability:
    """Find out, by starting it in a sandbox of its own, whether Open vSwitch runs here. Needs root.

    Takes about 0.3 s. `datapaths` are those to try, the preferred one first.
    """
    with trial(datapaths) as answer:
        return answer()


@contextmanager
def trial(datapaths: Sequence[str] = DATAPATHS) -> Iterator[Callable[[], Availability]]:
    """Find out the same while this block does something else; in it the answer can be waited for.

    It is asked for once. If it never is, the trial ends with the block.
    """
    missing = [name for name in _PROGRAMS if _program(name) is None]
    if missing:
        yield lambda: Availability(None, f"not installed: no {', '.join(missing)}", REMEDY)
        return
    with (
        tempfile.TemporaryDirectory(prefix="openvswitch-") as scratch,
        spawn(lambda _: _try_it(datapaths, Path(scratch))) as sandbox,
    ):

        def answer() -> Availability:
            try:
                return Availability(*sandbox.result())
            except ProcessFailedError:
                return Availability(None, "namespaces cannot be made", "run as root")

        yield answer


def _try_it(datapaths: Sequence[str], directory: Path) -> tuple[str | None, ...]:
    """Start it; return what `Availability` takes."""
    try:
        return (OpenVSwitch.start((), directory, datapaths=datapaths).datapath,)
    except (MachineError, RunFailedError, OSError) as error:
        return None, str(error).split("\n", maxsplit=1)[0], _last_words(directory)


def _last_words(log_directory: Path) -> str:
    """The last complaint in a daemon's log."""
    lines = [
        line
        for log in log_directory.glob("*.log")
        for line in log.read_text().splitlines()
        if "|ERR|" in line or "|WARN|" in line
    ]
    return f"ovs-vswitchd says: {lines[-1]}" if lines else REMEDY


def _program(name: str) -> str | None:
    """Where a program is; Debian keeps daemons off a user's PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _found(name: str) -> str:
    path = _program(name)
    if path is None:
        raise MachineError(f"Open vSwitch is not installed: no {name}", REMEDY)
    return path
