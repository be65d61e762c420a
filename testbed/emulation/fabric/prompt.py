"""Mininet's prompt in a live fabric, with ordinary traffic on its paths."""

import fcntl
import logging
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, NoReturn

from mininet import cli
from mininet.log import error, lg, output

from testbed.emulation.fabric.capture import LinkCaptures
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.interfaces import TUN_REMEDY
from testbed.emulation.fabric.net import FabricCLI, FabricNet, NamespaceNode
from testbed.emulation.fabric.netlink import NetlinkError
from testbed.emulation.fabric.ordinary import DelayProcess, OrdinaryTraffic, install_management
from testbed.model.errors import SIGNALLED, ExitStatus, TestbedError
from testbed.model.fabric.addressing import paths
from testbed.model.fabric.nodes import Link, Node
from testbed.model.fabric.topology import Topology
from testbed.model.units import show_duration
from testbed.sandbox.processes import ENDING_SIGNALS, Child, signals_handled, spawn

# --------------------------------------------------------------------------------------------------
# A sandbox with a terminal, in which Ctrl-C and Ctrl-D have their usual meaning.
#
# The caller's terminal belongs to the caller's session, so it cannot control a sandbox. The sandbox
# gets a pseudoterminal of its own, and the caller relays input and output byte by byte, as `script`
# and `ssh` do.


_CHUNK = 1 << 14
_STDIN, _STDOUT, _STDERR = range(3)


def run_in_terminal(first_process: Callable[[], int]) -> int:
    """Run a function as the first process of a sandbox and return its exit status.

    If standard input and output are a terminal, the sandbox has one of its own; otherwise it
    inherits both as they are. SIGTERM and SIGHUP end the sandbox, and so does SIGINT if it has no
    terminal of its own.
    """
    with signals_handled(ENDING_SIGNALS, _end):
        if os.isatty(_STDIN) and os.isatty(_STDOUT):
            return _relayed(first_process)
        return _wait(spawn(lambda _: sys.exit(first_process())))


class _Ended(BaseException):
    """A signal ends the sandbox."""


def _end(number: int, _: FrameType | None) -> NoReturn:
    # `timeout`, or an impatient user, may send more signals while the sandbox is ending.
    for ending in ENDING_SIGNALS:
        signal.signal(ending, signal.SIG_IGN)
    raise _Ended(number)


def _wait(sandbox: Child) -> int:
    """Wait for a sandbox and return its status: that of the signal, if one ended it."""
    try:
        return sandbox.wait()
    except _Ended as ended:
        return SIGNALLED + int(ended.args[0])
    finally:
        sandbox.close()


def _relayed(first_process: Callable[[], int]) -> int:
    master, slave = os.openpty()
    _copy_size(master)
    resized = signal.signal(signal.SIGWINCH, lambda _number, _frame: _copy_size(master))
    mode = termios.tcgetattr(_STDIN)
    sandbox = spawn(lambda _: sys.exit(_with_terminal(master, slave, first_process)))
    os.close(slave)
    try:
        tty.setraw(_STDIN)
        _relay(master)
    except _Ended as ended:
        sandbox.close()
        return SIGNALLED + int(ended.args[0])
    finally:
        termios.tcsetattr(_STDIN, termios.TCSAFLUSH, mode)
        signal.signal(signal.SIGWINCH, resized)
        os.close(master)
    return _wait(sandbox)


def _with_terminal(master: int, slave: int, first_process: Callable[[], int]) -> int:
    """Make the pseudoterminal control this session; then run the first process's function."""
    os.close(master)
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        os.dup2(slave, descriptor)
    os.close(slave)
    signal.signal(signal.SIGWINCH, signal.SIG_DFL)
    return first_process()


def _relay(master: int) -> None:
    """Relay bytes in both directions until the other side has closed the terminal."""
    sources = [_STDIN, master]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if master in ready:
            try:
                data = os.read(master, _CHUNK)
            except OSError:  # EIO: no process has it open any more
                return
            if not data:
                return
            _write_all(_STDOUT, data)
        if _STDIN in ready:
            data = os.read(_STDIN, _CHUNK)
            if data:
                _write_all(master, data)
            else:  # the caller's terminal hung up
                sources.remove(_STDIN)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _copy_size(master: int) -> None:
    """Give the pseudoterminal the size of the caller's terminal."""
    size = fcntl.ioctl(_STDIN, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    fcntl.ioctl(master, termios.TIOCSWINSZ, size)


_INTERRUPTED = 130

_NOT_HERE = {
    "dpctl": "its switches are the kernel's: p0_t0_0 ip -6 route shows what one knows",
    "iperf": "use iperf3 h0 h4",
    "iperfudp": "use iperf3 h0 h4 -u",
    "ports": "net names the ports and who is behind each",
    "x": "use xterm h0",
    "switch": "have it fail by a fault: testbed fault inject, from another terminal",
}
"""Mininet's commands that would hang, fail or do nothing in this fabric, and what to do instead."""

_READ_BY_OTHERS = frozenset({"noecho", "px", "py", "sh", "time"})
"""Commands whose line a shell or Python reads, which know comments themselves."""


Beside = Callable[[Fabric], AbstractContextManager[object]]
"""Makes what runs in the sandbox beside the prompt, given the fabric once it is built."""

Commands = Mapping[str, Callable[[str], int]]
"""Further commands of the prompt, by name; each takes the rest of its line and returns its exit
status."""

_NODE = re.compile(r"h\d+|p\d+_t[01]_\d+")
"""A name that a node of some fabric has."""


class _Failures(logging.Handler):
    """Notes that a command has printed an error: most of Mininet's tell of it in no other way."""

    def __init__(self, note: Callable[[int], None]) -> None:
        super().__init__(logging.ERROR)
        self._note = note

    def emit(self, _: logging.LogRecord) -> None:
        self._note(ExitStatus.WRONG_INPUT)


class FabricShell(FabricCLI):
    """Mininet's prompt with further commands, such as those for paths.

    Attributes:
        status: the exit status of the first command that failed; 0 if none has.
    """

    doc_header = "Commands (help COMMAND tells more)"
    helpStr = """
A node's name and a command run it in that node, where hosts' names resolve to their addresses:
  h0 ping -c3 h4        h4 iperf3 -s -D        p0_t0_0 ip -6 route
A program that draws on the terminal needs noecho: noecho h0 vi notes
"""  # noqa: N815 - Mininet's name

    def __init__(
        self,
        net: FabricNet,
        ordinary: OrdinaryTraffic,
        delay: DelayProcess | None,
        further: Commands,
    ) -> None:
        """Read commands from standard input until it ends: a terminal, a pipe or a file."""
        self._ordinary = ordinary
        self._delay = delay
        self._further = further
        self.status = 0
        self._sources: list[Path] = []
        failures = _Failures(self._note)
        lg.addHandler(failures)
        try:
            self._read(net)
        finally:
            lg.removeHandler(failures)

    def _read(self, net: FabricNet) -> None:
        """Read commands and carry them out until there are no more."""
        if os.isatty(0):
            super().__init__(net)
            return
        # Mininet passes its input to the command that runs. The lines of a script are commands,
        # and each must be read after the previous command has ended.
        reader, silent = os.pipe()
        with (
            os.fdopen(reader, encoding="utf-8", errors="surrogateescape") as keyboard,
            open(0, encoding="utf-8", errors="replace", closefd=False) as lines,
        ):
            super().__init__(net, stdin=keyboard, script=os.devnull)
            self._carry_out(lines)
        os.close(silent)

    def _carry_out(self, lines: Iterable[str]) -> bool:
        """Carry out the commands of a script; whether one of them has ended the prompt."""
        return any(self.onecmd(self.precmd(line)) for line in lines)

    def do_path(self, line: str) -> None:
        """Show the paths that packets take from one host to another, or select one.

        Usage: path SRC DST [PATH], such as: path h0 h4 p2/t1_3
        The path holds for SRC's packets to DST's address in its plane.
        """
        words = line.split()
        hosts = self._hosts(words[:2])
        if hosts is None:
            return
        src, dst = (*hosts, None, None)[:2]
        if src is None or dst is None or src == dst or len(words) > 3:  # noqa: PLR2004 - three words
            error("usage: path SRC DST [PATH], such as: path h0 h4 p2/t1_3\n")
            return
        topology = self._ordinary.topology
        if len(words) > 2:  # noqa: PLR2004 - the third word
            by_name = {path.name: path for path in paths(topology, src, dst)}
            if words[2] not in by_name:
                error(f"no path {words[2]}: one of {' '.join(by_name)}\n")
                return
            self._ordinary.use_path(src, dst, by_name[words[2]])
        for plane in range(topology.planes):
            output(f"{self._ordinary.path(src, dst, plane).name} ")
        output("\n")

    def do_mptcp(self, line: str) -> None:
        """Give MPTCP connections to and from hosts a subflow in every plane.

        Usage: mptcp HOST..., before the connections are made. A program that does not use MPTCP by
        itself can be run by `mptcpize run`.
        """
        if not line:
            error("usage: mptcp HOST..., such as: mptcp h0 h4\n")
        for host in self._hosts(line.split()) or ():
            self._ordinary.announce_planes(host)

    def do_iperf3(self, line: str) -> None:
        """Measure the throughput of TCP from one host to another.

        Usage: iperf3 SRC DST [OPTION...], such as: iperf3 h0 h4 -t 5 -P 4
        DST listens for this measurement only.
        """
        src, dst, options = (*line.split(maxsplit=2), "", "", "")[:3]
        if self._hosts([name for name in (src, dst) if name]) is None:
            return
        if not dst or src == dst:
            error("usage: iperf3 SRC DST [OPTION...], such as: iperf3 h0 h4 -t 5 -P 4\n")
        elif shutil.which("iperf3") is None:
            self._note(ExitStatus.MACHINE_CANNOT)
            error("iperf3 is not installed: apt install iperf3\n")
        else:
            self.onecmd(f"{dst} iperf3 --server --one-off --daemon")
            self.onecmd(f"{src} iperf3 --client {dst} {options}")

    def do_source(self, line: str) -> bool:
        """Read commands from a file.

        Usage: source FILE
        """
        file = Path(line.strip())
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as wrong:
            error(f"cannot read {line.strip() or 'a file without a name'}: {wrong}\n")
            return False
        if file.resolve() in self._sources:
            error(f"{file} is being read already: a file cannot source itself\n")
            return False
        self._sources.append(file.resolve())
        try:
            return self._carry_out(lines)
        finally:
            self._sources.pop()

    def do_sh(self, line: str) -> None:
        """Run a command outside of the nodes.

        Usage: sh COMMAND
        """
        status = subprocess.run(["/bin/sh", "-c", line], check=False).returncode  # noqa: S603 - the user's own
        self._note(_as_in_shells(status))

    def do_py(self, line: str) -> None:
        """Evaluate a Python expression.

        Usage: py EXPRESSION, such as: py h0.cmd("ls")
        """
        result = self._evaluated(line, "eval")
        if result:
            output(f"{result if isinstance(result, str) else repr(result)}\n")

    def do_px(self, line: str) -> None:
        """Execute a Python statement.

        Usage: px STATEMENT, such as: px print(h0.cmd("ls"))
        """
        self._evaluated(line, "exec")

    def _evaluated(self, line: str, mode: str) -> Any:
        """Evaluate Python; its error is printed, and the prompt goes on."""
        try:
            return eval(compile(line, "<prompt>", mode), vars(cli), self.getLocals())  # noqa: S307 - the user's own
        except (Exception, SystemExit) as wrong:  # noqa: BLE001 - whatever the user's code raises
            self._note(ExitStatus.FAILED)
            error(f"{str(wrong) or type(wrong).__name__}\n")
            return None

    def do_pingall(self, line: str) -> None:
        """Ping between all hosts.

        Usage: pingall [TIMEOUT]
        """
        self._note(bool(self.mn.pingAll(line)))

    def do_pingpair(self, _line: str) -> None:
        """Ping between the first two hosts."""
        self._note(bool(self.mn.pingPair()))

    def do_pingallfull(self, _line: str) -> None:
        """Ping between all hosts; show round trips."""
        self._note_pings(self.mn.pingAllFull())

    def do_pingpairfull(self, _line: str) -> None:
        """Ping between the first two hosts; show the round trip."""
        self._note_pings(self.mn.pingPairFull())

    def _note_pings(self, pings: Iterable[tuple[object, object, tuple[Any, ...]]]) -> None:
        """Note whether a ping was not answered, of (source, destination, (sent, received, ...))."""
        self._note(any(sent != received for _, _, (sent, received, *_) in pings))

    def default(self, line: str) -> None:
        """Run a command in a node, or say what there is instead.

        It runs as it is written: the node itself resolves hosts' names.
        """
        name, rest, _ = self.parseline(line)
        if name in self.mn:
            if rest:
                node = self.mn[name]
                node.sendCmd(rest)
                self.waitForNode(node)
                if node.shell is not None:
                    status, printed = node.last_status()
                    output(printed)
                    self._note(status)
            else:
                error(f"usage: {name} COMMAND, such as: {name} ip -6 route\n")
        elif name and _NODE.fullmatch(name):
            error(f"{self._no_node(name)}\n")
        else:
            error(f"unknown command: {line.strip()}; help lists the commands\n")

    def waitForNode(self, node: NamespaceNode) -> None:  # noqa: N802 - Mininet's name
        """Print what a command prints, and pass keys on, until it ends or its shell does."""
        ended = os.pidfd_open(node.shell.pid)
        try:
            while node.waiting:
                try:
                    ready = select.select([node.stdout, self.stdin, ended], [], [])[0]
                    if self.stdin in ready:
                        node.write(self.stdin.read(1))
                    if node.stdout in ready:
                        output(node.monitor())
                    elif ended in ready:
                        self._note(_as_in_shells(node.close_shell()))
                except KeyboardInterrupt:
                    node.sendInt()
        finally:
            os.close(ended)

    def do_help(self, arg: str) -> None:
        """Show the commands, or how one of them is used."""
        if not arg or any(hasattr(self, f"{kind}_{arg}") for kind in ("do", "help")):
            super().do_help(arg)
        else:
            error(f"unknown command: {arg}; help lists the commands\n")

    def precmd(self, line: str) -> str:
        """Remove a comment, but from what a shell or Python reads: a # may be quoted there."""
        name = self.parseline(line)[0]
        return line if name in self.mn or name in _READ_BY_OTHERS else super().precmd(line)

    def get_names(self) -> list[str]:
        """The names of the commands, for `help` and for completion."""
        names = super().get_names()
        return [name for name in names if name.removeprefix("do_") not in _NOT_HERE]

    def onecmd(self, line: str) -> bool:
        """Run a command line; print its error, if it has one, and go on."""
        if "\0" in line:  # no command and no path has one
            error("a command with a NUL byte, which none can have\n")
            return False
        instead = _NOT_HERE.get((line.split(maxsplit=1) or [""])[0])
        if instead is not None:
            error(f"not in this fabric; {instead}\n")
            return False
        if self._delay is not None and self._delay.ended():
            self._note(ExitStatus.FAILED)
            error("the propagation delay's process has ended: no ordinary traffic arrives\n")
        name, _, rest = line.strip().partition(" ")
        try:
            if name in self._further:
                self._note(self._further[name](rest))
                return False
            return bool(super().onecmd(line))
        except TestbedError as wrong:
            self._note(wrong.exit_status)
            error(f"{wrong}\n")
            return False
        finally:
            sys.stdout.flush()

    def _note(self, status: int) -> None:
        """Keep the exit status of a command, if it is the first that failed."""
        self.status = self.status or int(status)

    def _hosts(self, names: Iterable[str]) -> list[Node] | None:
        """The hosts of these names; None if there is one that is none, which is said."""
        hosts = {host.name: host for host in self._ordinary.topology.hosts}
        for name in names:
            if name not in hosts:
                error(f"{self._no_node(name)}\n")
                return None
        return [hosts[name] for name in names]

    def _no_node(self, name: str) -> str:
        """What to say where a node is named that there is not, or one that is no host."""
        topology = self._ordinary.topology
        hosts, switches = topology.hosts, topology.switches
        if name in self.mn or not name.startswith("p"):
            return f"no host {name} in {topology.name}: hosts are {_first_to_last(hosts)}"
        return f"no switch {name} in {topology.name}: switches are {_first_to_last(switches)}"


def _as_in_shells(status: int) -> int:
    """The exit status of a process, given that of `subprocess`: minus the signal that killed it."""
    return status if status >= 0 else SIGNALLED - status


def _first_to_last(nodes: Sequence[Node]) -> str:
    return f"{nodes[0].name} to {nodes[-1].name}"


def run_shell(
    topology: Topology,
    pcaps: Mapping[Link, Path],
    realtime_offset_ns: int,
    report: Callable[[str], None],
    beside: Beside = lambda _: nullcontext(),
    further: Commands = MappingProxyType({}),
) -> int:
    """Build a fabric, give the user its prompt, and return the exit status.

    That of commands that are piped in is the status of the first that failed; the others are
    carried out all the same.

    Args:
        topology: the fabric.
        pcaps: files to capture links to.
        realtime_offset_ns: CLOCK_REALTIME minus CLOCK_MONOTONIC, for captures.
        report: prints a line for the user.
        beside: makes a context that is entered in the sandbox and left when the prompt ends.
        further: more commands of the prompt.
    """

    def capture() -> LinkCaptures | None:
        return LinkCaptures(pcaps, realtime_offset_ns) if pcaps else None

    return run_in_terminal(lambda: _first_process(topology, capture, report, beside, further))


def _first_process(
    topology: Topology,
    capture: Callable[[], LinkCaptures | None],
    report: Callable[[str], None],
    beside: Beside,
    further: Commands,
) -> int:
    lg.handlers[0].setStream(sys.stdout)
    try:
        with ExitStack() as stack:
            fabric = stack.enter_context(Fabric(topology))
            fabric.verify()
            fabric.sweep()
            ordinary = OrdinaryTraffic(topology, fabric.namespaces)
            ordinary.install()
            _management_network(fabric, report)
            delay = _propagation_delay(fabric, stack, report)
            stack.enter_context(beside(fabric))
            captures = capture()
            if captures is not None:
                stack.callback(_stop, captures, report)
            if os.isatty(0):
                report(_welcome(topology))
            shell = FabricShell(fabric.net, ordinary, delay, further)
            return os.EX_OK if os.isatty(0) else shell.status
    except TestbedError as wrong:
        report(f"error: {wrong}")
        return wrong.exit_status
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        sys.stdout.flush()


def _management_network(fabric: Fabric, report: Callable[[str], None]) -> None:
    """Connect the hosts outside the fabric, if this machine can."""
    try:
        install_management(fabric.topology, fabric.namespaces)
    except NetlinkError as error:
        report(f"no management network here: {error}; remedy: modprobe bridge")


def _propagation_delay(
    fabric: Fabric, stack: ExitStack, report: Callable[[str], None]
) -> DelayProcess | None:
    """Hold ordinary traffic until the stack unwinds; returns None if this machine cannot."""
    try:
        delay = stack.enter_context(DelayProcess(fabric.topology, fabric.namespaces))
    except OSError as error:
        report(f"ordinary traffic has no propagation delay here: {error}; remedy: {TUN_REMEDY}")
        return None
    stack.callback(_report_lost, delay, report)
    return delay


def _report_lost(delay: DelayProcess, report: Callable[[str], None]) -> None:
    lost = delay.lost()
    if lost:
        report(f"{lost} packets of ordinary traffic were lost: this machine could not keep up")


def _welcome(topology: Topology) -> str:
    first, last = topology.hosts[0].name, topology.hosts[-1].name
    return (
        f"{topology.name}: {len(topology.hosts)} hosts, {len(topology.switches)} switches, "
        f"{len(topology.links)} links. Time is dilated: a round trip takes "
        f"{show_duration(topology.propagation_rtt_ns)}.\n"
        f"Try: {first} ping -c3 {last}    path {first} {last}    pingall    net    help    "
        "Ctrl-D ends it"
    )


def _stop(captures: LinkCaptures, report: Callable[[str], None]) -> None:
    lost_frames = captures.stop()
    for link, file in captures.files.items():
        lost = lost_frames[link.name]
        also = f" ({lost} frames lost: this machine could not keep up)" if lost else ""
        report(f"{link.name}: {file}{also}")
