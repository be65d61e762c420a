"""The fabric as a Mininet network: its topology, its nodes and links, its prompt."""

import re
from functools import partial

from mininet.cli import CLI
from mininet.log import error
from mininet.net import Mininet
from mininet.topo import Topo

from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.emulation.fabric.mininet.links import FabricIntf, FabricLink
from testbed.emulation.fabric.mininet.nodes import FabricHost, FabricSwitch
from testbed.emulation.fabric.netlink.namespaces import NodeNamespaces
from testbed.model.fabric.addressing import ordinary_address
from testbed.model.fabric.nodes import Link
from testbed.model.fabric.topology import Topology


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
    """The Mininet network of a fabric: nodes as namespaces, links as records.

    Attributes:
        topology: the model.
    """

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
