"""A fabric as a picture: planes side by side, T1s above T0s above the hosts that join them."""

import testbed.results.plotting  # noqa: F401 - before Matplotlib

# isort: split
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from testbed.model.fabric.addressing import management_address
from testbed.model.fabric.nodes import Link, Node, Tier
from testbed.model.fabric.topology import Topology
from testbed.model.units import show_rate
from testbed.results.report.figures.style import GREY, PLANES, YELLOW, style, write

# --------------------------------------------------------------------------------------------------
# Where a picture of a fabric has its nodes: planes side by side, T1s above T0s above the hosts.


HEIGHT = {Tier.HOST: 0.0, Tier.T0: 1.5, Tier.T1: 3.0}
SWITCH_PITCH = 1.0
"""From one switch to the next; a host's pitch follows from the width of the whole."""

_PLANE_GAP = 0.6
_MIN_HOST_PITCH, _MAX_HOST_PITCH = 0.75, 2.5

Places = dict[Node, tuple[float, float]]
"""The middle of every node."""


def host_groups(topology: Topology) -> list[tuple[str, tuple[Node, ...]]]:
    """The hosts in groups that are drawn together, each with its name.

    They are nodes where these have several NICs, else racks.
    """
    if topology.nics_per_node > 1:
        return [(f"n{node}", topology.nics(node)) for node in range(topology.node_count)]
    racks = range(topology.t0_per_plane)
    return [(f"rack {rack}", topology.hosts_below(rack)) for rack in racks]


def places_of(topology: Topology) -> Places:
    """Where every node is; rows are centred over one another, and the leftmost node is at x 0."""
    wide = SWITCH_PITCH * max(topology.t0_per_plane, topology.t1_per_plane)
    places = {}
    for switch in topology.switches:
        count = topology.t0_per_plane if switch.tier is Tier.T0 else topology.t1_per_plane
        x = switch.plane * (wide + _PLANE_GAP) + wide / count * (switch.index + 0.5)
        places[switch] = x, HEIGHT[switch.tier]
    whole = topology.planes * (wide + _PLANE_GAP) - _PLANE_GAP
    groups = host_groups(topology)
    steps = max(len(topology.hosts) - 1 + len(groups) - 1, 1)  # a gap between groups
    step = min(max((whole - SWITCH_PITCH) / steps, _MIN_HOST_PITCH), _MAX_HOST_PITCH)
    offset = (whole - step * (len(topology.hosts) + len(groups) - 2)) / 2
    for gaps, (_, hosts) in enumerate(groups):
        for host in hosts:
            places[host] = offset + step * (host.index + gaps), HEIGHT[Tier.HOST]
    least = min(x for x, _ in places.values())
    return {node: (x - least, y) for node, (x, y) in places.items()}


_HALF_BOX = 0.16
_INCHES = 0.72
"""Of the picture for one unit of the drawing."""

_MIN_WIDTH_IN, _MAX_WIDTH_IN = 6.0, 40.0
_DARK_YELLOW = "#C2B000"
_SMALL_FONT, _FONT = 6.0, 7.5


def draw(topology: Topology, file: Path) -> None:
    """Draw a fabric into a PNG or SVG file.

    Raises:
        OSError: the file cannot be written.
    """
    with style():
        places = places_of(topology)
        right = max(x for x, _ in places.values())
        width = min(max((right + 1.6) * _INCHES, _MIN_WIDTH_IN), _MAX_WIDTH_IN)
        figure = Figure(figsize=(width, 4.9), layout="constrained")
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set_xlim(-0.9, right + 0.9)
        axes.set_ylim(-1.1, HEIGHT[Tier.T1] + 0.85)
        unit_in = width / (right + 1.8)
        for link in topology.links.values():
            _draw_link(axes, topology, link, places)
        for node, (x, y) in places.items():
            _draw_node(axes, topology, node, x, y, unit_in)
        _draw_planes(axes, topology, places)
        _draw_groups(axes, topology, places)
        _draw_management(axes, topology, places)
        axes.set_title(_title(topology))
        write(figure, file, topology.name)


def _colour(plane: int) -> str:
    """The plane's colour as in every figure, but for yellow, which lines are too thin for."""
    return _DARK_YELLOW if PLANES[plane] == YELLOW else PLANES[plane]


def _title(topology: Topology) -> str:
    planes = "1 plane" if topology.planes == 1 else f"{topology.planes} planes"
    return (
        f"{topology.name}: {planes} of {topology.t0_per_plane} T0 and {topology.t1_per_plane} T1, "
        f"{_hosts(topology)}\nports of {show_rate(topology.port_rate)}, "
        f"T0-T1 links of {show_rate(topology.t0_t1_rate)}"
    )


# --- drawing ------------------------------------------------------------------------------------


def _draw_link(axes: Axes, topology: Topology, link: Link, places: Places) -> None:
    (x0, y0), (x1, y1) = places[link.lower.node], places[link.upper.node]
    if not link.is_fabric:
        x0 += _port_offset(topology, link.plane)
    width, alpha = (1.1, 0.9) if link.is_fabric else (0.9, 0.65)
    look: dict[str, Any] = {"linewidth": width, "alpha": alpha, "solid_capstyle": "round"}
    ends = (x0, x1), (y0 + _HALF_BOX, y1 - _HALF_BOX)
    axes.plot(*ends, color=_colour(link.plane), zorder=1, **look)


def _port_offset(topology: Topology, plane: int) -> float:
    """Where on a host's upper edge the port of a plane is."""
    return 0.0 if topology.planes == 1 else (plane / (topology.planes - 1) - 0.5) * 0.44


def _draw_node(
    axes: Axes, topology: Topology, node: Node, x: float, y: float, unit_in: float
) -> None:
    is_host = node.tier is Tier.HOST
    half = 0.3 if is_host else 0.43
    corner, size = (x - half, y - _HALF_BOX), (2 * half, 2 * _HALF_BOX)
    rounding, edge = (0.12, GREY) if is_host else (0.03, _colour(node.plane))
    look = {"facecolor": "white", "edgecolor": edge, "linewidth": 1.1, "zorder": 2}
    _draw_box(axes, corner, size, rounding, **look)
    font = _FONT if unit_in * 2 * half > 0.5 or is_host else _SMALL_FONT  # noqa: PLR2004 - inches
    axes.text(x, y, node.name, ha="center", va="center_baseline", fontsize=font, zorder=3)
    if is_host:
        for plane in range(topology.planes):
            port = x + _port_offset(topology, plane)
            axes.plot(port, y + _HALF_BOX, "s", markersize=2.6, color=_colour(plane), zorder=3)


def _draw_box(
    axes: Axes, corner: tuple[float, float], size: tuple[float, float], rounding: float, **look: Any
) -> None:
    shape = f"round,pad=0,rounding_size={rounding}"
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=shape, **look))


def _draw_planes(axes: Axes, topology: Topology, places: Places) -> None:
    for plane in range(topology.planes):
        switches = [node for node in topology.switches if node.plane == plane]
        xs = [places[node][0] for node in switches]
        left, right = min(xs) - 0.6, max(xs) + 0.6
        low, high = HEIGHT[Tier.T0] - 0.38, HEIGHT[Tier.T1] + 0.7
        look = {"facecolor": _colour(plane), "edgecolor": "none", "alpha": 0.09, "zorder": 0}
        _draw_box(axes, (left, low), (right - left, high - low), 0.12, **look)
        middle, font = (left + right) / 2, {"fontsize": 8.5, "fontweight": "bold"}
        axes.text(middle, high - 0.2, f"plane {plane}", font, ha="center", va="center")


def _draw_groups(axes: Axes, topology: Topology, places: Places) -> None:
    y = HEIGHT[Tier.HOST] - _HALF_BOX - 0.12
    for name, hosts in host_groups(topology):
        left, right = places[hosts[0]][0] - 0.3, places[hosts[-1]][0] + 0.3
        axes.plot((left, right), (y, y), color=GREY, linewidth=1.0)
        middle, font = (left + right) / 2, {"fontsize": 7.5, "color": GREY}
        axes.text(middle, y - 0.1, name, font, ha="center", va="top")


def _draw_management(axes: Axes, topology: Topology, places: Places) -> None:
    """The network beside the fabric, by which programs meet."""
    y, xs = HEIGHT[Tier.HOST] - 0.7, [places[host][0] for host in topology.hosts]
    axes.plot((min(xs) - 0.3, max(xs) + 0.3), (y, y), color=GREY, linewidth=0.9, linestyle=":")
    text = f"management network, without faults: {_first(topology)}"
    axes.text(
        (min(xs) + max(xs)) / 2, y - 0.08, text, fontsize=6.5, color=GREY, ha="center", va="top"
    )


# --------------------------------------------------------------------------------------------------
# A fabric as text: a compact picture for terminals, Graphviz, Mermaid.


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

    nodes = f"Nodes: {topology.nodes_in_words}; n0 is {_range(topology.nics(0))}."
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
            f"Beside it is the management network, without faults: {_first(topology)}.",
            *([nodes] if topology.nics_per_node > 1 else []),
        ]
    )


def _first(topology: Topology) -> str:
    """The first host and its address in the management network, which say those of all others."""
    host, *_ = topology.hosts
    return f"{host.name} is {management_address(host)}"


def _hosts(topology: Topology) -> str:
    """How many hosts there are, and in how many nodes if these have several."""
    hosts = f"{len(topology.hosts)} hosts"
    return f"{hosts} in {topology.node_count} nodes" if topology.nics_per_node > 1 else hosts


def _count(number: int, what: str, ending: str = "s") -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}{ending}"


def _mesh(topology: Topology) -> str:
    """How T0s and T1s of a plane are joined."""
    return "><" if min(topology.t0_per_plane, topology.t1_per_plane) > 1 else "|"


def _racks(topology: Topology) -> Iterator[str]:
    for rack in range(topology.t0_per_plane):
        hosts = _range(topology.hosts_below(rack))
        below = f"p0_t0_{rack}" if topology.planes == 1 else f"p*_t0_{rack}"
        rail = f", rail {rack % topology.nics_per_node}" if topology.rails else ""
        yield f"hosts{_GAP}{hosts}  below {below}{rail}"


def _range(nodes: Sequence[Node]) -> str:
    """Name one node, both, or the first and the last; also the second if there is a step."""
    names = [node.name for node in nodes]
    if len(names) <= 2:  # noqa: PLR2004 - one, both
        return " ".join(names)
    second = f"{names[1]} " if nodes[1].index - nodes[0].index > 1 else ""
    return f"{names[0]} {second}.. {names[-1]}"


def graphviz(topology: Topology) -> str:
    """Write the fabric in Graphviz' language, for `dot -Tsvg`."""
    lines = [
        f'graph "{topology.name}" {{',
        "  graph [rankdir=BT, splines=false, nodesep=0.2, ranksep=1.2]",
        '  node [shape=box, fontname="sans-serif", fontsize=10, height=0.3]',
        *(f"  {node.name} [style=rounded]" for node in topology.hosts),
    ]
    if topology.nics_per_node > 1:
        for name, hosts in host_groups(topology):
            inside = "; ".join(host.name for host in hosts)
            lines.append(f'  subgraph cluster_{name} {{ label="{name}"; {inside} }}')
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
    if topology.nics_per_node > 1:
        for name, hosts in host_groups(topology):
            inside = [f"    {host.name}" for host in hosts]
            lines += [f'  subgraph {name}["{name}"]', *inside, "  end"]
    lines += [f"  {_ends(link, ' --- ', down=True)}" for link in topology.links.values()]
    return "\n".join(lines)


def _of(topology: Topology, plane: int, tier: Tier) -> list[Node]:
    return [node for node in topology.switches if (node.plane, node.tier) == (plane, tier)]


def _ends(link: Link, joint: str, *, down: bool = False) -> str:
    lower, upper = link.lower.node.name, link.upper.node.name
    return joint.join((upper, lower) if down else (lower, upper))
