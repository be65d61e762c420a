"""Mininet's prompt in a live fabric, with ordinary traffic on its paths."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import MappingProxyType

from mininet.log import error, lg, output

from testbed.fabric import management
from testbed.fabric.capture import LinkCaptures
from testbed.fabric.fabric import Fabric
from testbed.fabric.interfaces import TUN_REMEDY
from testbed.fabric.mininet.net import FabricCLI, FabricNet
from testbed.fabric.mininet.terminal import run_in_terminal
from testbed.fabric.netlink.socket import NetlinkError
from testbed.fabric.ordinary.propagation import DelayProcess
from testbed.fabric.ordinary.routes import OrdinaryTraffic
from testbed.model.errors import TestbedError
from testbed.model.fabric.addressing import paths
from testbed.model.fabric.nodes import Link, Node
from testbed.model.fabric.topology import Topology
from testbed.model.units import show_duration

_INTERRUPTED = 130

_NOT_HERE = {
    "dpctl": "its switches are the kernel's: p0_t0_0 ip -6 route shows what one knows",
    "iperf": "use iperf3 h0 h4",
    "iperfudp": "use iperf3 h0 h4 -u",
    "ports": "net names the ports and who is behind each",
    "switch": "have it fail by a fault: testbed fault inject, from another terminal",
}
"""Mininet's commands that would hang, fail or do nothing in this fabric, and what to do instead."""


Beside = Callable[[Fabric], AbstractContextManager[object]]
"""Makes what runs in the sandbox beside the prompt, given the fabric once it is built."""

Commands = Mapping[str, Callable[[str], None]]
"""Further commands of the prompt, by name; each is given the rest of its line."""


def _alone(_: Fabric) -> AbstractContextManager[object]:
    """Nothing runs beside the prompt."""
    return nullcontext()


class FabricShell(FabricCLI):
    """Mininet's prompt with further commands, such as those for paths."""

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
        if os.isatty(0):
            super().__init__(net)
            return
        # Mininet passes its input to the command that runs. The lines of a script are commands,
        # and each must be read after the previous command has ended.
        reader, silent = os.pipe()
        with os.fdopen(reader) as keyboard:
            super().__init__(net, stdin=keyboard, script=os.devnull)
            for line in sys.stdin:
                if self.onecmd(line):
                    break
        os.close(silent)

    def default(self, line: str) -> None:
        """Run a command in a node, as it is written: the node itself resolves hosts' names."""
        first, command, _ = self.parseline(line)
        if first in self.mn and command:
            node = self.mn[first]
            node.sendCmd(command)
            self.waitForNode(node)
        else:
            super().default(line)

    def do_path(self, line: str) -> None:
        """Show the paths that packets take from one host to another, or select one.

        Usage: path SRC DST [PATH], such as: path h0 h4 p2/t1_3
        The path holds for SRC's packets to DST's address in its plane.
        """
        words = line.split()
        hosts = [self._host(word) for word in words[:2]]
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
        for word in line.split():
            host = self._host(word)
            if host is None:
                error(f"no host {word}\n")
                return
            self._ordinary.announce_planes(host)

    def do_iperf3(self, line: str) -> None:
        """Measure the throughput of TCP from one host to another.

        Usage: iperf3 SRC DST [OPTION...], such as: iperf3 h0 h4 -t 5 -P 4
        DST listens for this measurement only.
        """
        src, dst, options = (*line.split(maxsplit=2), "", "", "")[:3]
        if self._host(src) is None or self._host(dst) is None or src == dst:
            error("usage: iperf3 SRC DST [OPTION...], such as: iperf3 h0 h4 -t 5 -P 4\n")
        elif shutil.which("iperf3") is None:
            error("iperf3 is not installed: apt install iperf3\n")
        else:
            self.onecmd(f"{dst} iperf3 --server --one-off --daemon")
            self.onecmd(f"{src} iperf3 --client {dst} {options}")

    def do_source(self, line: str) -> bool:
        """Read commands from a file.

        Usage: source FILE
        """
        try:
            lines = Path(line.strip()).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as wrong:
            error(f"cannot read {line.strip() or 'a file without a name'}: {wrong}\n")
            return False
        return any(self.onecmd(command) for command in lines)

    def get_names(self) -> list[str]:
        """The names of the commands, for `help` and for completion."""
        names = super().get_names()
        return [name for name in names if name.removeprefix("do_") not in _NOT_HERE]

    def onecmd(self, line: str) -> bool:
        """Run a command line; print its error, if it has one, and go on."""
        instead = _NOT_HERE.get((line.split(maxsplit=1) or [""])[0])
        if instead is not None:
            error(f"not in this fabric; {instead}\n")
            return False
        if self._delay is not None and self._delay.ended():
            error("the propagation delay's process has ended: no ordinary traffic arrives\n")
        name, _, rest = line.strip().partition(" ")
        try:
            if name in self._further:
                self._further[name](rest)
                return False
            return bool(super().onecmd(line))
        except TestbedError as wrong:
            error(f"{wrong}\n")
            return False
        finally:
            sys.stdout.flush()

    def _host(self, name: str) -> Node | None:
        node = self._ordinary.topology.nodes.get(name)
        return node if node in self._ordinary.topology.hosts else None


def run_shell(
    topology: Topology,
    pcaps: Mapping[Link, Path],
    realtime_offset_ns: int,
    report: Callable[[str], None],
    beside: Beside = _alone,
    further: Commands = MappingProxyType({}),
) -> int:
    """Build a fabric, give the user its prompt, and return the exit status.

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
            FabricShell(fabric.net, ordinary, delay, further)
    except TestbedError as wrong:
        report(f"error: {wrong}")
        return wrong.exit_status
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        sys.stdout.flush()
    return os.EX_OK


def _management_network(fabric: Fabric, report: Callable[[str], None]) -> None:
    """Connect the hosts outside the fabric, if this machine can."""
    try:
        management.install(fabric.topology, fabric.namespaces)
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
