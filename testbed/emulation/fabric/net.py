"""The fabric as a Mininet network: its topology, its nodes and links, its prompt.

Mininet's links and interfaces are records only: the fabric makes all veths at once.
"""

import codecs
import os
import pty
import re
import select
import sys
from functools import partial
from pathlib import Path
from typing import Any

from mininet.cli import CLI
from mininet.link import Intf
from mininet.link import Link as MininetLink
from mininet.log import error
from mininet.net import Mininet
from mininet.node import Host, Node, Switch
from mininet.topo import Topo

from testbed.emulation.fabric.interfaces import write_sysctl
from testbed.emulation.fabric.link_model.link_control import LinkControl, read_link
from testbed.emulation.fabric.netlink import NodeNamespaces
from testbed.model.fabric.addressing import ordinary_address
from testbed.model.fabric.nodes import Link
from testbed.model.fabric.topology import Topology
from testbed.sandbox.namespaces import NETNS_DIR


class FabricIntf(Intf):  # type: ignore[misc] # Mininet is untyped
    """A port of the fabric; its `ifindex` is unique there."""

    def __init__(self, name: str, ifindex: int = 0, address: str = "", **params: Any) -> None:
        """Record the port.

        Args:
            name: its name.
            ifindex: its index.
            address: the node's address for ordinary traffic in this port's plane, which Mininet
                substitutes for the node's name; empty for a switch.
            params: further parameters of Mininet's.
        """
        self.ifindex = ifindex
        self._address = address
        super().__init__(name, **params)
        self.ip = address or None

    def config(self, **_params: Any) -> dict[str, Any]:
        """Do nothing: the fabric configures all ports at once."""
        return {}

    def updateIP(self) -> str:  # noqa: N802 - Mininet's name
        """Return the node's address in this port's plane; empty for a switch."""
        return self._address

    def updateMAC(self) -> str:  # noqa: N802 - Mininet's name
        """Return the port's MAC address."""
        return str(self.mac)

    def updateAddr(self) -> tuple[str, str]:  # noqa: N802 - Mininet's name
        return self.updateIP(), self.updateMAC()

    def isUp(self, setUp: bool = False) -> bool:  # noqa: ARG002, N802 - Mininet's names
        link = read_link(self.node.namespace.netlink, self.ifindex, self.name)
        return bool(link.get_attr("IFLA_CARRIER"))

    def status(self) -> str:
        """Return the status that Mininet's `links` shows."""
        return "OK" if self.isUp() else "DOWN"

    def delete(self) -> None:
        """Forget the port: the kernel removes it with its namespace."""
        self.node.delIntf(self)
        self.link = None


class FabricLink(MininetLink):  # type: ignore[misc] # Mininet is untyped
    @classmethod
    def makeIntfPair(cls, *_args: Any, **_params: Any) -> None:  # noqa: N802 - Mininet's name
        """Do nothing: the fabric makes all links at once."""

    def stop(self) -> None:
        """Do nothing: the kernel removes the veth with its namespaces."""


# --------------------------------------------------------------------------------------------------
# Mininet's nodes as named network namespaces; a node gets a shell when it is first needed.


PROMPT = chr(127)
"""The character by which Mininet recognizes the end of a command's output."""


class NamespaceNode(Node):  # type: ignore[misc] # Mininet is untyped
    """A node that is a named namespace of this sandbox.

    Attributes:
        namespace: the namespace.
        environment: variables of the programs that its shell runs.
    """

    shell: Any  # Mininet's own

    @classmethod
    def checkSetup(cls) -> None:  # noqa: N802 - Mininet's name
        """Check nothing: mnexec and ifconfig, which Mininet needs, are not used."""

    def __init__(self, name: str, namespaces: NodeNamespaces, **params: Any) -> None:
        """Make the namespace; no shell yet."""
        self._namespaces = namespaces
        self.environment: dict[str, str] = {}
        self.namespace = namespaces.create(name)
        with self.namespace.entered():
            for key, value in _QUIET.items():
                write_sysctl(key, value)
        super().__init__(name, **{**params, "inNamespace": True})

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802 - Mininet's name
        """Do nothing: Mininet's constructor calls this, but most nodes never need a shell."""

    def open_shell(self) -> None:
        """Start the node's shell, if it has none."""
        if self.shell is not None:
            return
        self.master, self.slave = pty.openpty()
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        command = ["setsid", "--ctty", *self.enter_command, "env", f"PS1={PROMPT}", f"PATH={path}"]
        command += [f"{name}={value}" for name, value in self.environment.items()]
        command += ["bash", "--norc", "--noediting", "-is", f"mininet:{self.name}"]
        self.shell = self._popen(command, stdin=self.slave, stdout=self.slave, stderr=self.slave)
        self.stdin = self.stdout = os.fdopen(self.master, "r", encoding="utf-8")
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a program prints any byte
        self.pid = self.shell.pid
        self.pollOut = select.poll()
        self.pollOut.register(self.stdout)
        self.outToNode[self.stdout.fileno()] = self.inToNode[self.stdin.fileno()] = self
        self.execed = False
        while not self.read().endswith(PROMPT):
            self.pollOut.poll()
        self.waiting = False
        self.cmd("unset HISTFILE; stty -echo; set +m")

    @property
    def enter_command(self) -> list[str]:
        """The beginning of a command line that runs the rest of it in the namespace."""
        return ["nsenter", f"--net={NETNS_DIR / self.name}", "--"]

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - Mininet's name
        """Send a command to the node's shell."""
        self.open_shell()
        kwargs.pop("printPid", None)  # needs mnexec
        super().sendCmd(*args, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> str:
        """Run a command in the node's shell and return what it prints."""
        self.open_shell()
        return str(super().cmd(*args, **kwargs))

    def close_shell(self) -> int:
        """Take leave of a shell that has ended, as `exit` does; returns its exit status.

        The next command gets a new one.
        """
        status: int = self.shell.wait()
        self.cleanup()
        self.waiting = False
        return status

    def last_status(self) -> tuple[int, str]:
        """The exit status of the last command, and what others have printed meanwhile."""
        before, _, rest = self.cmd("echo status:$?:").partition("status:")
        status, _, after = rest.partition(":\r\n")
        return int(status), before + after

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("mncmd", self.enter_command)
        return super().popen(*args, **kwargs)

    def defaultIntf(self) -> Any:  # noqa: N802 - Mininet's name
        """Return the interface of the lowest port: switches have no control interface."""
        return Node.defaultIntf(self)

    def configDefault(self, **_params: Any) -> None:  # noqa: N802 - Mininet's name
        """Do nothing: the fabric configures all nodes at once."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Do nothing: the fabric configures all nodes at once."""
        return {}

    def terminate(self) -> None:
        super().terminate()
        self._namespaces.remove(self.name)


_QUIET = {
    "ipv6/conf/all/disable_ipv6": "0",
    "ipv6/conf/default/disable_ipv6": "0",
    "ipv6/conf/default/addr_gen_mode": "1",  # no link-local addresses
    "ipv6/conf/default/accept_dad": "0",
    "ipv6/conf/default/dad_transmits": "0",
    "ipv6/conf/default/router_solicitations": "0",
    "ipv6/conf/default/accept_ra": "0",
}
"""Sysctls by which the kernel sends no packet of its own on any port."""


class FabricHost(NamespaceNode, Host):  # type: ignore[misc] # Mininet is untyped
    """A host: a NIC with one port in each plane."""


class FabricSwitch(NamespaceNode, Switch):  # type: ignore[misc] # Mininet is untyped
    """A switch: static uN routes in a namespace, and no process."""

    def start(self, _controllers: list[Any]) -> None:
        """Do nothing: the kernel forwards by the routes."""

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """Do nothing: the kernel removes interfaces with their namespace."""


class ClosTopo(Topo):  # type: ignore[misc] # Mininet is untyped
    r"""A multi-plane two-tier Clos fabric; here clos-tiny, two planes of two T0s and two T1s.

               plane 0                          plane 1

        p0_t1_0      p0_t1_1             p1_t1_0      p1_t1_1
           |  \        /  |                 |  \        /  |
           |    \    /    |                 |    \    /    |
           |      ><      |                 |      ><      |
           |    /    \    |                 |    /    \    |
           |  /        \  |                 |  /        \  |
        p0_t0_0      p0_t0_1             p1_t0_0      p1_t0_1
           |            |                   |            |
           |            '------------.      |            |
           |                         |      |            |
           |   .---------------------|------'            |
           |   |                     |   .---------------'
           |   |                     |   |
           h0                        h1

    A host has one port in every plane, each on the T0 of its rack; a T0 has one uplink to every
    T1 of its plane. Planes meet only in the hosts.
    """

    def build(self, topology: Topology) -> None:
        """Add the model's nodes and links."""
        for host in topology.hosts:
            self.addHost(host.name, ip=str(ordinary_address(topology, host, 0)))
        for switch in topology.switches:
            self.addSwitch(switch.name, inNamespace=True)
        for link in topology.links.values():
            lower, upper = link.ports
            self.addLink(
                lower.node.name,
                upper.node.name,
                intfName1=lower.name,
                intfName2=upper.name,
                addr1=lower.mac,
                addr2=upper.mac,
                params1={"ifindex": lower.ifindex, "address": _host_address(topology, link)},
                params2={"ifindex": upper.ifindex},
            )


def _host_address(topology: Topology, link: Link) -> str:
    """The host's address in the link's plane, which Mininet substitutes for the host's name."""
    return "" if link.is_fabric else str(ordinary_address(topology, link.lower.node, link.plane))


class FabricNet(Mininet):  # type: ignore[misc] # Mininet is untyped
    """The Mininet network of a fabric: nodes as namespaces, links as records."""

    def __init__(self, topology: Topology, namespaces: NodeNamespaces) -> None:
        """Make the nodes' namespaces. Needs a sandbox."""
        self.topology = topology
        self._link_control = LinkControl(topology, namespaces)
        Mininet.inited = True  # otherwise Mininet would rewrite sysctls of the host
        super().__init__(
            topo=ClosTopo(topology),
            host=partial(FabricHost, namespaces=namespaces),
            switch=partial(FabricSwitch, namespaces=namespaces),
            link=FabricLink,
            intf=FabricIntf,
            controller=None,
        )

    def configHosts(self) -> None:  # noqa: N802 - Mininet's name
        """Do nothing: the fabric configures all nodes at once."""

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:  # noqa: N802
        """Set a link up or down for Mininet's `link`; its routes come back with it."""
        names = {f"{src}--{dst}", f"{dst}--{src}"} & self.topology.links.keys()
        if not names:
            error(f"no link between {src} and {dst}\n")
            return
        change = self._link_control.restore if status == "up" else self._link_control.cut
        change(names.pop())


_COMMENT = re.compile(r"(?<!\S)#.*")
"""From a # that begins a word to the end of the line."""


class FabricCLI(CLI):  # type: ignore[misc] # Mininet is untyped
    """Mininet's prompt, without a history file in the user's home directory."""

    def precmd(self, line: str) -> str:
        """Remove a comment; the # of h0-h4#1 begins none."""
        return _COMMENT.sub("", line)

    @classmethod
    def initReadline(cls) -> None:  # noqa: N802 - Mininet's name
        """Keep no history."""
