"""The figures of this lab: addresses of the fabric, and packets of a student's run."""

from collections.abc import Mapping
from ipaddress import IPv6Address
from typing import Any

import polars as pl

from testbed.model.fabric import addressing
from testbed.model.fabric.addressing import Path
from testbed.model.fabric.names import node_named
from testbed.model.fabric.nodes import Node
from testbed.model.files.topologies import load_topology
from testbed.studies.labs.evidence import Evidence

RUN = "walk"
FABRIC = load_topology("clos-4plane")


def paths_across(lab: Evidence) -> int:
    """How many paths lead to a host of another rack, in the fabric that the question names."""
    return paths_within(lab) * uppers(lab)


def paths_within(lab: Evidence) -> int:
    """How many lead to one of the same rack."""
    return load_topology(lab.drawn["map"]).planes


def uppers(lab: Evidence) -> int:
    """How many upper switches a plane of this fabric has."""
    return load_topology(lab.drawn["map"]).t1_per_plane


def seen(drawn: Mapping[str, Any]) -> str:
    """The destination of a packet at an upper switch: the first uSID is shifted out."""
    path = Path(drawn["seen_plane"], drawn["seen_t1"])
    usids = addressing.carrier_usids(FABRIC, _node("h0"), _node(drawn["seen_dst"]), path)
    return str(addressing.address(*usids[1:]))


def usid(lab: Evidence) -> str:
    """The uSID of the upper switch that the question names, as four hexadecimal digits."""
    path = _path(lab)
    return f"{addressing.node_usid(FABRIC, _node(f'p{path.plane}_t1_{path.t1}'), path.plane):x}"


def carrier(lab: Evidence) -> IPv6Address:
    """The destination address of a packet as it leaves its host."""
    src, dst = _node(lab.drawn["src"]), _node(lab.drawn["dst"])
    return addressing.carrier_address(FABRIC, src, dst, _path(lab))


def shifted(lab: Evidence) -> IPv6Address:
    """The same behind the first switch."""
    src, dst = _node(lab.drawn["src"]), _node(lab.drawn["dst"])
    return addressing.address(*addressing.carrier_usids(FABRIC, src, dst, _path(lab))[1:])


def paths_used(lab: Evidence) -> int:
    """How many paths the flow's packets took."""
    return lab.frame(RUN, "transmissions")["path"].n_unique()


def path_of_psn(lab: Evidence) -> str:
    """The path of the packet that the question names."""
    frame = lab.frame(RUN, "transmissions").filter(pl.col("seq") == lab.drawn["psn"])
    return str(frame["path"][0])


def host_of_capture(lab: Evidence) -> str:
    """The host to which the captured packet goes."""
    return str(lab.drawn["seen_dst"])


def switch_of_capture(lab: Evidence) -> str:
    """The switch whose uSID comes first in the captured address."""
    return f"p{lab.drawn['seen_plane']}_t1_{lab.drawn['seen_t1']}"


def _path(lab: Evidence) -> Path:
    return Path(lab.drawn["plane"], lab.drawn["t1"])


def _node(name: str) -> Node:
    node = node_named(FABRIC, name)
    if node is None:
        raise ValueError(name)
    return node
