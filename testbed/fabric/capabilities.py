"""What this machine can do, found by trying it in a throwaway sandbox.

Nothing is concluded from a version. Every attempt makes the real thing and reads it back, because
a kernel may accept a route and drop its flavour without a word.
"""

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Network
from pathlib import Path

from testbed.fabric import namespaces, requests, routes, shaping
from testbed.fabric.layout import SID_DEVICE
from testbed.fabric.netlink import Netlink, NetlinkError
from testbed.fabric.requests import Interface
from testbed.model.addressing import Role, locator, usid
from testbed.model.errors import MachineError
from testbed.model.topology import LINK_MTU

_NODE = "probe"
_IFINDEX, _PEER_IFINDEX = 100, 101
_KERNELS = "Ubuntu 24.04, Debian 12 or 13, Fedora 41, or any kernel from 6.1 on with their options"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One thing that the fabric needs.

    Attributes:
        name: what it is, short.
        remedy: what to install or change where it is missing.
        run: does it; raises OSError or NetlinkError, or returns what is wrong.
    """

    name: str
    remedy: str
    run: Callable[[], str | None]


def require() -> None:
    """Make sure that a fabric can be built here.

    Raises:
        MachineError: it cannot; names the first thing missing and the remedy.
    """
    missing = probe()
    if missing:
        raise missing[0]


def probe() -> list[MachineError]:
    """Try all that a fabric needs and return what is missing, the most basic first."""
    if os.geteuid() != 0:
        return [MachineError("namespaces need root", "run as root, such as with sudo")]
    reader, writer = os.pipe()
    waiter = namespaces.start_sandbox(lambda: _report(writer))
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(waiter, 0)
    if not answer:
        remedy = "run outside a container, or in a privileged one (docker run --privileged)"
        return [MachineError("PID, network and mount namespaces cannot be made", remedy)]
    return [MachineError(what, remedy) for what, remedy in json.loads(answer)]


def _report(writer: int) -> int:
    missing = []
    for attempt in _attempts():
        try:
            wrong = attempt.run()
        except (OSError, NetlinkError) as error:
            wrong = str(error)
        if wrong is not None:
            missing.append((f"{attempt.name}: {wrong}", attempt.remedy))
            break  # the next attempts build on this one
    with os.fdopen(writer, "w") as pipe:
        json.dump(missing, pipe)
    return 0


def _attempts() -> tuple[Attempt, ...]:
    return (
        Attempt(
            "IPv6",
            "boot without ipv6.disable=1; in a container, enable IPv6 (sysctl "
            "net.ipv6.conf.all.disable_ipv6=0)",
            _ipv6,
        ),
        Attempt("network namespaces", "run in a privileged container, or outside", _namespace),
        Attempt("veth links", "modprobe veth, or install linux-modules-extra", _veth),
        Attempt("uN routes (SRv6 End with NEXT-C-SID)", f"a kernel that has them: {_KERNELS}", _un),
        Attempt("HTB", "modprobe sch_htb, or install linux-modules-extra", _htb),
        Attempt("raw IPv6 sockets", "grant the container CAP_NET_RAW", _raw_sockets),
        Attempt("RPS", "a kernel with CONFIG_RPS, as every distribution has", _rps),
    )


def _ipv6() -> str | None:
    return None if Path("/proc/sys/net/ipv6").is_dir() else "the kernel has it switched off"


def _namespace() -> str | None:
    os.close(namespaces.create_netns(_NODE))
    return None


def _veth() -> str | None:
    fd = namespaces.open_netns(_NODE)
    try:
        with Netlink.at(_NODE) as netlink:
            one = Interface(SID_DEVICE, _IFINDEX, "02:00:00:00:00:01", fd)
            other = Interface(f"{SID_DEVICE}-peer", _PEER_IFINDEX, "02:00:00:00:00:02", fd)
            netlink.send([requests.new_veth(one, other, LINK_MTU)])
            netlink.send([requests.set_link(_IFINDEX, SID_DEVICE, up=True)])
    finally:
        os.close(fd)
    return None


def _un() -> str | None:
    wanted = routes.Route(_locator(), _IFINDEX, action=routes.UN)
    with Netlink.at(_NODE) as netlink:
        tables = routes.Tables(frozenset((wanted,)), frozenset(), frozenset())
        netlink.send(routes.install(tables, str))
        found = [one for one in routes.read_routes(netlink) if one.destination == _locator()]
    if found != [wanted]:
        return f"the kernel installed {', '.join(one.text(str) for one in found) or 'nothing'}"
    return None


def _locator() -> IPv6Network:
    return locator(usid(Role.T0, 0, 0))


def _htb() -> str | None:
    with Netlink.at(_NODE) as netlink:
        shape = shaping.Shape(10_000_000, 100_000)
        netlink.send(shaping.attach(_IFINDEX, shape))
        netlink.send([shaping.blackhole(_IFINDEX)])
    return None


def _raw_sockets() -> str | None:
    for protocol in (socket.IPPROTO_RAW, socket.IPPROTO_IPV6):
        socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol).close()
    return None


def _rps() -> str | None:
    place = Path("/run/sys")
    place.mkdir()
    fd = namespaces.open_netns(_NODE)
    try:
        with namespaces.entered(fd):
            namespaces.mount("sysfs", str(place), "sysfs")
        (place / "class/net" / SID_DEVICE / "queues/rx-0/rps_cpus").write_text("1")
    finally:
        os.close(fd)
    return None
