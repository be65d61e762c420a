"""A fabric as text: a compact picture for terminals, Graphviz, Mermaid."""

from collections.abc import Iterator, Sequence

from testbed.model.fabric.nodes import Link, Node, Tier
from testbed.model.fabric.topology import Topology
from testbed.model.units import show_rate

_GAP = "   "


def compact(topology: Topology) -> str:
    """Draw planes side by side, T1s above T0s above hosts, ranges instead of long lists.

    clos-tiny: 2 planes, 2 hosts of 2 ports, 8 switches, 12 links
    """
    planes = range(topology.planes)
    t1s = [_range([topology.t1(p, j) for j in range(topology.t1_per_plane)]) for p in planes]
    t0s = [_range([topology.t0(p, i) for i in range(topology.t0_per_plane)]) for p in planes]
    heads = [f"plane {plane}" for plane in planes]
    mesh = [_mesh(topology)] * topology.planes
    width = max(map(len, (*t1s, *t0s, *heads, *mesh)))

    def row(name: str, cells: Sequence[str]) -> str:
        return _GAP.join([f"{name:<5}", *(cell.center(width) for cell in cells)]).rstrip()

    title = (
        f"{topology.name}: {_count(topology.planes, 'plane')}, "
        f"{_count(len(topology.hosts), 'host')} of {_count(topology.planes, 'port')}, "
        f"{_count(len(topology.switches), 'switch', 'es')}, {_count(len(topology.links), 'link')}"
    )
    return "\n".join(
        [
            title,
            "",
            row("", heads),
            row("T1", t1s),
            row("", mesh),
            row("T0", t0s),
            row("", ["|".center(width)] * topology.planes),
            *_racks(topology),
            "",
            f"Each T0 is linked to each T1 of its plane ({show_rate(topology.t0_t1_rate)}),",
            f"each host to its rack's T0 of every plane ({show_rate(topology.port_rate)}).",
        ]
    )


def _count(number: int, what: str, ending: str = "s") -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}{ending}"


def _mesh(topology: Topology) -> str:
    """How T0s and T1s of a plane are joined."""
    return "><" if min(topology.t0_per_plane, topology.t1_per_plane) > 1 else "|"


def _racks(topology: Topology) -> Iterator[str]:
    for rack in range(topology.t0_per_plane):
        first = rack * topology.hosts_per_t0
        hosts = [topology.host(first + i) for i in range(topology.hosts_per_t0)]
        below = f"p0_t0_{rack}" if topology.planes == 1 else f"p*_t0_{rack}"
        yield f"hosts{_GAP}{_range(hosts)}  below {below}"


def _range(nodes: Sequence[Node]) -> str:
    """Name one node, both, or the first and the last."""
    names = [node.name for node in nodes]
    return " ".join(names) if len(names) <= 2 else f"{names[0]} .. {names[-1]}"  # noqa: PLR2004 - one, both


def graphviz(topology: Topology) -> str:
    """Write the fabric in Graphviz' language, for `dot -Tsvg`."""
    lines = [
        f'graph "{topology.name}" {{',
        "  graph [rankdir=BT, splines=false, nodesep=0.2, ranksep=1.2]",
        '  node [shape=box, fontname="sans-serif", fontsize=10, height=0.3]',
        *(f"  {node.name} [style=rounded]" for node in topology.hosts),
    ]
    for plane in range(topology.planes):
        lines += [f"  subgraph cluster_p{plane} {{", f'    label="plane {plane}"']
        for tier in (Tier.T0, Tier.T1):
            names = "; ".join(node.name for node in _of(topology, plane, tier))
            lines.append(f"    {{ rank=same; {names} }}")
        lines.append("  }")
    lines += [f"  {_ends(link, ' -- ')}" for link in topology.links.values()]
    return "\n".join([*lines, "}"])


def mermaid(topology: Topology) -> str:
    """Write the fabric as a Mermaid flowchart, which GitHub draws in Markdown."""
    lines = ["flowchart TB"]
    for plane in range(topology.planes):
        lines.append(f'  subgraph p{plane}["plane {plane}"]')
        for tier in (Tier.T1, Tier.T0):
            lines += [f"    {node.name}[{node.name}]" for node in _of(topology, plane, tier)]
        lines.append("  end")
    lines += [f"  {node.name}([{node.name}])" for node in topology.hosts]
    lines += [f"  {_ends(link, ' --- ', down=True)}" for link in topology.links.values()]
    return "\n".join(lines)


def _of(topology: Topology, plane: int, tier: Tier) -> list[Node]:
    return [node for node in topology.switches if (node.plane, node.tier) == (plane, tier)]


def _ends(link: Link, joint: str, *, down: bool = False) -> str:
    lower, upper = link.lower.node.name, link.upper.node.name
    return joint.join((upper, lower) if down else (lower, upper))
