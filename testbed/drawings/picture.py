"""A fabric as a picture: planes side by side, T1s above T0s above the hosts that join them."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from testbed.drawings.places import HEIGHT, Places, places_of
from testbed.model.fabric.nodes import Link, Node, Tier
from testbed.model.fabric.topology import Topology
from testbed.model.units import show_rate
from testbed.results.report.figures.style import GREY, PLANES, YELLOW, style, write

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
        figure = Figure(figsize=(width, 4.6), layout="constrained")
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set_xlim(-0.9, right + 0.9)
        axes.set_ylim(-0.75, HEIGHT[Tier.T1] + 0.85)
        unit_in = width / (right + 1.8)
        for link in topology.links.values():
            _draw_link(axes, topology, link, places)
        for node, (x, y) in places.items():
            _draw_node(axes, topology, node, x, y, unit_in)
        _draw_planes(axes, topology, places)
        _draw_racks(axes, topology, places)
        axes.set_title(_title(topology))
        write(figure, file, topology.name)


def _colour(plane: int) -> str:
    """The plane's colour as in every figure, but for yellow, which lines are too thin for."""
    return _DARK_YELLOW if PLANES[plane] == YELLOW else PLANES[plane]


def _title(topology: Topology) -> str:
    planes = "1 plane" if topology.planes == 1 else f"{topology.planes} planes"
    return (
        f"{topology.name}: {planes} of {topology.t0_per_plane} T0 and {topology.t1_per_plane} T1, "
        f"{len(topology.hosts)} hosts\nports of {show_rate(topology.port_rate)}, "
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
    """Draw a box with round corners, from its lower left corner."""
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


def _draw_racks(axes: Axes, topology: Topology, places: Places) -> None:
    y = HEIGHT[Tier.HOST] - _HALF_BOX - 0.12
    for rack in range(topology.t0_per_plane):
        first = topology.host(rack * topology.hosts_per_t0)
        last = topology.host((rack + 1) * topology.hosts_per_t0 - 1)
        left, right = places[first][0] - 0.3, places[last][0] + 0.3
        axes.plot((left, right), (y, y), color=GREY, linewidth=1.0)
        middle, font = (left + right) / 2, {"fontsize": 7.5, "color": GREY}
        axes.text(middle, y - 0.1, f"rack {rack}", font, ha="center", va="top")
