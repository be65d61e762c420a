"""The fabric for other systems: containerlab, FRR, SONiC, plain Linux, and the simulator htsim.

Those of switches say what `addressing.node_routes` says: a switch's own uN, and one static /48 to
each neighbour. Next hops are the addresses of links (`addressing.link_address`), which real
switches resolve. What a form cannot say is told in a comment at its place; SONiC's JSON has no
comments, so that it has a README.

Sources: doc/user/static.rst and tests/topotests/static_srv6_sids of FRR;
doc/srv6/srv6_static_config_hld.md and doc/packet_trimming/packet-trimming-design.md of SONiC;
lab-examples/frr01 of containerlab.
"""

import json
from collections.abc import Callable, Iterator

from testbed.model.errors import InputError
from testbed.model.fabric.addressing import (
    BLOCK_BITS,
    USID_BITS,
    link_address,
    node_routes,
)
from testbed.model.fabric.nodes import Node, Port, Tier
from testbed.model.fabric.topology import LINK_MTU, NO_LIMIT, Shape, Topology, shape_of
from testbed.mrc.constants import DscpClasses

Files = Iterator[tuple[str, str]]
"""The files of a form, one after the other: its path in the directory, and its text."""

FRR_IMAGE = "quay.io/frrouting/frr:10.5.1"
LINK_BITS = 127
TRIM_BYTES = 128
"""SONiC's default, from the Ethernet header on. 122 reach to the end of a WRITE's TSETH, which the
receiver of a trimmed packet reads."""


# --- Linux --------------------------------------------------------------------------------------


def linux(topology: Topology) -> Files:
    """A script of `ip` commands for each node."""
    return ((f"{name}.sh", _script(topology, node)) for name, node in topology.nodes.items())


def _script(topology: Topology, node: Node) -> str:
    lines = [
        "#!/bin/sh",
        f"# {node.name} of {topology.name}. As root, with Linux 6.1 and iproute2 6.1 or newer.",
        "# Its ports have to have these names, or change the names here.",
        "set -e",
    ]
    if node.tier is not Tier.HOST:
        lines += [
            "# Linux trims no packets: a full queue drops. Rates and ECN are tc's, and not here.",
            "sysctl -q -w net.ipv6.conf.all.forwarding=1",
            "# A SID cannot be on lo. usid is any interface that stays up.",
            "ip link show dev usid > /dev/null 2>&1 || ip link add usid type dummy",
            "ip link set dev usid up",
        ]
    return "\n".join([*lines, *_commands(topology, node)]) + "\n"


def _commands(topology: Topology, node: Node) -> Iterator[str]:
    """The commands that give a node its addresses and routes; each may be given again."""
    plan = node_routes(topology, node)
    for hop in plan.neighbours:
        yield f"ip link set dev {hop.port.name} mtu {LINK_MTU} up"
        address = f"{link_address(hop.port)}/{LINK_BITS}"
        yield f"ip -6 address replace {address} dev {hop.port.name} nodad"
    for local in plan.local:
        yield f"ip -6 address replace {local}/128 dev lo nodad"
    for hop in plan.neighbours:
        via = link_address(hop.via)
        yield f"ip -6 route replace {hop.locator} via {via} dev {hop.port.name}"
    if plan.un is not None:
        flavour = f"next-csid lblen {BLOCK_BITS} nflen {USID_BITS}"
        behaviour = f"encap seg6local action End flavors {flavour} count"
        yield f"ip -6 route replace {plan.un} {behaviour} dev usid"


# --- FRR and containerlab -------------------------------------------------------------------------


def frr(topology: Topology) -> Files:
    """A configuration for each switch; the daemons that it needs always run."""
    return ((f"{node.name}/frr.conf", _frr(topology, node)) for node in topology.switches)


def _frr(topology: Topology, switch: Node) -> str:
    plan = node_routes(topology, switch)
    ports = "\n".join(
        f"interface {hop.port.name}\n"
        f" description to {hop.via.node.name}, its port {hop.via.name}\n"
        f" ipv6 address {link_address(hop.port)}/{LINK_BITS}\n"
        "exit\n!"
        for hop in plan.neighbours
    )
    routes = "\n".join(
        f"ipv6 route {hop.locator} {link_address(hop.via)} {hop.port.name}"
        for hop in plan.neighbours
    )
    lengths = f"block-len {BLOCK_BITS} node-len {USID_BITS} func-bits 16"
    return f"""\
! {switch.name} of {topology.name}, for FRR 10.3 or newer.
! FRR cannot say: forwarding (sysctl net.ipv6.conf.all.forwarding=1), the MTU of {LINK_MTU}, rates,
! queues, ECN marking and packet trimming.
hostname {switch.name}
!
{ports}
! The neighbours' uSIDs, a static route each. Before FRR 10.3 they can be used alone.
{routes}
!
! The switch's own uN. Older FRR has no static-sids: there, take the last line of the script
! that --export linux writes. FRR puts it on an interface sr0, which it cannot make:
! ip link add sr0 type dummy; ip link set sr0 up
segment-routing
 srv6
  locators
   locator MAIN
    prefix {plan.un} {lengths}
    behavior usid
   exit
   !
  exit
  !
  static-sids
   sid {plan.un} locator MAIN behavior uN
  exit
  !
 exit
 !
exit
!
"""


def containerlab(topology: Topology) -> Files:
    """FRR's files, and a topology of containerlab whose nodes use them."""
    nodes = [_container(topology, node) for node in topology.nodes.values()]
    links = [
        f'    - endpoints: ["{lower.node.name}:{lower.name}", "{upper.node.name}:{upper.name}"]\n'
        for lower, upper in (link.ports for link in topology.links.values())
    ]
    file = f"""\
# {topology.name}, for: containerlab deploy -t {topology.name}.clab.yml
# The kernel of the machine has to be Linux 6.1 or newer. Its links have no rate, no ECN marking
# and no trimming: paths can be tried here, congestion cannot. Hosts have the addresses of MRC NICs.
name: {topology.name}
topology:
  defaults:
    kind: linux
    image: {FRR_IMAGE}
  nodes:
"""
    yield f"{topology.name}.clab.yml", "".join([file, *nodes, "  links:\n", *links])
    yield from frr(topology)


def _container(topology: Topology, node: Node) -> str:
    lines = [f"{node.name}:"]
    commands = list(_commands(topology, node))
    if node.tier is not Tier.HOST:
        lines += [
            "  binds:",
            f"    - {node.name}/frr.conf:/etc/frr/frr.conf",
            "  sysctls:",
            "    net.ipv6.conf.all.forwarding: 1",
        ]
        commands = ["ip link add sr0 type dummy", "ip link set dev sr0 up"]
    lines += ["  exec:", *(f"    - {command}" for command in commands)]
    return "".join(f"    {line}\n" for line in lines)


# --- SONiC ----------------------------------------------------------------------------------------

_DSCP = DscpClasses()
_NO_TRIM, _DATA, _TRIMMED_HERE, _PRIORITY = "0", "3", "5", "6"
"""Traffic classes, each the queue of its number, but for packets trimmed here: they have a class of
their own, so that only their DSCP is changed, and leave by the queue of control packets."""

_CLASSES = {
    _DSCP.no_trim: _NO_TRIM,
    _DSCP.trimmable: _DATA,
    _DSCP.trimmable_retx: _DATA,
    _DSCP.trimmed: _PRIORITY,
    _DSCP.trimmed_lasthop: _PRIORITY,
    _DSCP.control: _PRIORITY,
}

_README = f"""\
# SONiC

One fragment of `config_db.json` for each switch: `sudo config load NAME.json`, then `sudo config
save`. It needs SONiC 202505 or newer with FRR 10.3 and bgpcfgd (`SRV6_MY_SIDS`), and an ASIC that
trims packets: `SWITCH_TRIMMING_CAPABLE` in `SWITCH_CAPABILITY|switch` of STATE_DB. JSON has no
comments; what it cannot say is here.

- **Ports** are called Ethernet0, Ethernet1, ... in the order of the testbed's. Names, lanes and
  speeds are the platform's: rename them by `description` in `PORT`, which has both ends.
- **SIDs**: `decap_dscp_mode` has to be there. A uN of this fabric decapsulates nothing.
- **Next hops** are addresses of the links. Each end has to answer neighbour discovery; a NIC has
  the address that `--export linux` gives its host.
- **Trimming**: SONiC trims what the buffer profile does not admit (`static_th`), to {TRIM_BYTES}
  bytes or what the ASIC can. `egress_lossy_pool` is the platform's own. Its alpha or its reserved
  bytes can make the threshold another one: measure it.
- **DSCP of trimmed packets**: {_DSCP.trimmed} in the fabric, {_DSCP.trimmed_lasthop} on a T0's port
  to a host. `TC_TO_DSCP_MAP` has only the class of packets trimmed here ({_TRIMMED_HERE}); an ASIC
  that rewrites all classes needs a row for each. It cannot tell which class a packet had before.
- **Packets that may not be trimmed** (DSCP {_DSCP.no_trim}) have a queue of their own, as trimming
  is a property of a queue. In the testbed they share that of data.
- **ECN**: WRED marks between both thresholds, 100% at the upper. Whether the average or the present
  length of the queue counts is the ASIC's.
- **Hosts** are not here: an MRC NIC is set up by its own tools.
"""


def sonic(topology: Topology) -> Files:
    """A fragment of config_db.json for each switch, and what it cannot say."""
    yield "README.md", _README
    real = topology.model_copy(update={"dilation": 1.0})
    for switch in topology.switches:
        yield f"{switch.name}.json", json.dumps(_sonic(real, switch), indent=4) + "\n"


def _sonic(topology: Topology, switch: Node) -> dict[str, object]:
    plan = node_routes(topology, switch)
    ports = [
        (f"Ethernet{number}", hop, shape_of(topology, link, hop.port))
        for number, (hop, (_, _, link)) in enumerate(
            zip(plan.neighbours, topology.adjacency[switch], strict=True)
        )
    ]
    kinds = {name: _kind(hop.port, shape) for name, hop, shape in ports}
    shapes = {kinds[name]: shape for name, _, shape in ports}
    marking = {kind: shape for kind, shape in shapes.items() if shape.ecn_min_bytes < NO_LIMIT}
    interfaces: dict[str, dict[str, str]] = {}
    queues: dict[str, dict[str, str]] = {}
    for name, hop, _ in ports:
        interfaces |= {name: {}, f"{name}|{link_address(hop.port)}/{LINK_BITS}": {}}
        data = {"scheduler": "MRC_DATA"}
        data |= {"wred_profile": kinds[name]} if kinds[name] in marking else {}
        queues |= {f"{name}|{_NO_TRIM}": data, f"{name}|{_DATA}": data}
        queues[f"{name}|{_PRIORITY}"] = {"scheduler": "MRC_PRIORITY"}
    un = plan.un
    assert un is not None  # noqa: S101 - it is a switch
    return {
        "PORT": {
            name: {
                "description": f"{hop.port.name} to {hop.via.name}",
                "speed": str(shape.rate_bps // 10**6),
                "mtu": str(LINK_MTU),
                "admin_status": "up",
            }
            for name, hop, shape in ports
        },
        "INTERFACE": interfaces,
        "SRV6_MY_LOCATORS": {
            "MAIN": {
                "prefix": str(un.network_address),
                "block_len": str(BLOCK_BITS),
                "node_len": str(USID_BITS),
                "func_len": "0",
            }
        },
        "SRV6_MY_SIDS": {f"MAIN|{un}": {"action": "uN", "decap_dscp_mode": "pipe"}},
        "STATIC_ROUTE": {
            f"default|{hop.locator}": {"nexthop": str(link_address(hop.via)), "ifname": name}
            for name, hop, _ in ports
        },
        "DSCP_TO_TC_MAP": {"MRC": {str(dscp): tc for dscp, tc in sorted(_CLASSES.items())}},
        "TC_TO_QUEUE_MAP": {
            "MRC": {tc: tc for tc in (_NO_TRIM, _DATA, _PRIORITY)} | {_TRIMMED_HERE: _PRIORITY}
        },
        "TC_TO_DSCP_MAP": {
            kind: {_TRIMMED_HERE: str(_DSCP.trimmed_lasthop if shape.last_hop else _DSCP.trimmed)}
            for kind, shape in shapes.items()
        },
        "PORT_QOS_MAP": {
            name: {"dscp_to_tc_map": "MRC", "tc_to_queue_map": "MRC", "tc_to_dscp_map": kind}
            for name, kind in kinds.items()
        },
        "SWITCH_TRIMMING": {
            "GLOBAL": {
                "size": str(TRIM_BYTES),
                "dscp_value": "from-tc",
                "tc_value": _TRIMMED_HERE,
                "queue_index": _PRIORITY,
            }
        },
        "BUFFER_PROFILE": {kind: _buffer(shape) for kind, shape in shapes.items()},
        "BUFFER_QUEUE": {f"{name}|{_DATA}": {"profile": kind} for name, kind in kinds.items()},
        "WRED_PROFILE": {kind: _wred(shape) for kind, shape in marking.items()},
        "SCHEDULER": {
            "MRC_DATA": {"type": "DWRR", "weight": "50"},
            "MRC_PRIORITY": {"type": "STRICT"},
        },
        "QUEUE": queues,
    }


def _kind(port: Port, shape: Shape) -> str:
    """The name of the profiles and maps of a kind of port."""
    if shape.last_hop:
        return "MRC_LAST_HOP"
    return "MRC_T0_UP" if port.node.tier is Tier.T0 else "MRC_T1_DOWN"


def _buffer(shape: Shape) -> dict[str, str]:
    trims = shape.trim_bytes < NO_LIMIT
    return {
        "pool": "egress_lossy_pool",
        "size": "0",
        "static_th": str(shape.trim_bytes if trims else shape.limit_bytes),
        "packet_discard_action": "trim" if trims else "drop",
    }


def _wred(shape: Shape) -> dict[str, str]:
    return {
        "ecn": "ecn_all",
        "wred_green_enable": "true",
        "green_min_threshold": str(shape.ecn_min_bytes),
        "green_max_threshold": str(shape.ecn_max_bytes),
        "green_drop_probability": "100",
    }


# --- htsim ----------------------------------------------------------------------------------------


def htsim(topology: Topology) -> Files:
    """A topology of uet-htsim and csg-htsim: one plane, at real speed.

    Raises:
        InputError: it has rails.
    """
    if topology.rails:
        expected = "another form: in htsim's the hosts of a leaf are in a row, so it has no rails"
        raise InputError.of("--export", "htsim", expected)
    real = topology.model_copy(update={"dilation": 1.0})
    leaf_ns, spine_ns = real.one_way_ns(1) // 2, (real.one_way_ns(3) - real.one_way_ns(1)) // 2
    hosts, down, up = len(topology.hosts), topology.hosts_per_t0, topology.t1_per_plane
    text = f"""\
# {topology.name}: one of its {topology.planes} planes. htsim has no queues of single ports here:
# -ecn and -q set them for all. It takes whole numbers, links of one rate, and leaves with as many
# hosts as spines, or a multiple.
Nodes {hosts}
Tiers 2
Podsize {hosts}

Tier 0
Downlink_speed_Gbps {topology.port_rate / 1e9:g}
Radix_Down {down}
Radix_Up {up}
Oversubscribed {down // up}
Downlink_Latency_ns {leaf_ns}
Switch_Latency_ns 0

Tier 1
Downlink_speed_Gbps {topology.t0_t1_rate / 1e9:g}
Radix_Down {topology.t0_per_plane}
Downlink_Latency_ns {spine_ns}
Switch_Latency_ns 0
"""
    yield f"{topology.name}.topo", text


FORMS: dict[str, Callable[[Topology], Files]] = {
    "containerlab": containerlab,
    "frr": frr,
    "sonic": sonic,
    "linux": linux,
    "htsim": htsim,
}
"""What writes each form."""
