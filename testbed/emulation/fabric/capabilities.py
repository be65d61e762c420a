"""What a fabric and its traffic need of a machine, found out by trying it in a throwaway sandbox.

Nothing is concluded from a version: each requirement is tried for real. Routes are read back,
because a kernel may accept one and silently drop its flavour.
"""

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from typing import Any

from pyroute2.netlink.rtnl import TC_H_ROOT

from testbed.emulation.fabric import requests, routes
from testbed.emulation.fabric.interfaces import TUN_REMEDY, open_tun
from testbed.emulation.fabric.layout import SID_DEVICE
from testbed.emulation.fabric.link_model import link_model, shaping
from testbed.emulation.fabric.netlink import (
    SEG6_IPTUN_MODE_ENCAP_RED,
    NodeNamespace,
    NodeNamespaces,
)
from testbed.emulation.fabric.requests import GenericNetlink, Interface
from testbed.model.errors import MachineError, TestbedError
from testbed.model.fabric.addressing import Role, locator, usid_of
from testbed.model.fabric.topology import LINK_MTU, Shape
from testbed.rights import as_root
from testbed.sandbox import namespaces
from testbed.sandbox.processes import ProcessFailedError, call
from testbed.sandbox.system_calls import system_call

# --------------------------------------------------------------------------------------------------
# What a machine must be able to do, found out by trying it in a throwaway sandbox.


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that this machine must, or may, be able to do.

    Attributes:
        name: short name.
        remedy: what to install or change if it is missing.
        run: tries it; raises OSError or TestbedError, or returns what is wrong, if anything is.
        needed_for: what cannot be done without it.
        required: whether no run is possible without it.
    """

    name: str
    remedy: str
    run: Callable[[], str | None]
    needed_for: str = "every run"
    required: bool = True

    def result(self) -> "RequirementResult":
        try:
            wrong = self.run()
        except (OSError, TestbedError) as error:
            wrong = str(error).split("\n", maxsplit=1)[0]
        return self._result(wrong)

    def not_tried(self, reason: str) -> "RequirementResult":
        return self._result(f"not tried: {reason}")

    def _result(self, wrong: str | None) -> "RequirementResult":
        remedy = "" if wrong is None else self.remedy
        return RequirementResult(
            self.name, wrong is None, wrong or "", self.needed_for, remedy, required=self.required
        )


@dataclass(frozen=True, slots=True)
class RequirementResult:
    """Whether a machine meets a requirement.

    Attributes:
        name: what was tried.
        ok: whether this machine can do it.
        detail: what is wrong, or what was measured.
        needed_for: what cannot be done without it.
        remedy: what to install or change; empty if nothing needs to be.
        required: whether no run is possible without it.
    """

    name: str
    ok: bool
    detail: str
    needed_for: str
    remedy: str
    required: bool


_ROOT = Requirement("root", "run as root, such as with sudo", lambda: None)
_SANDBOX = Requirement(
    "PID, network and mount namespaces",
    "run outside a container, or in a privileged one (docker run --privileged)",
    lambda: None,
)


def examine(requirements: Sequence[Requirement]) -> list[RequirementResult]:
    """Try each requirement in a throwaway sandbox, after root and the sandbox itself.

    They are tried in order, in the sandbox's own namespaces. Each depends on the required ones
    before it: if one of those fails, the rest is not tried.
    """
    if os.geteuid() != 0:
        reason = "it needs root"
        root = _ROOT._result("namespaces need it")  # noqa: SLF001 - of this module
        return [root, *(requirement.not_tried(reason) for requirement in (_SANDBOX, *requirements))]
    try:
        results = call(lambda: _try_all(requirements))
    except ProcessFailedError:
        sandbox = _SANDBOX._result("they cannot be made")  # noqa: SLF001 - of this module
        rest = [requirement.not_tried("it needs namespaces") for requirement in requirements]
        return [_ROOT.result(), sandbox, *rest]
    return [_ROOT.result(), _SANDBOX.result(), *(RequirementResult(**result) for result in results)]


def _try_all(requirements: Sequence[Requirement]) -> list[dict[str, Any]]:
    results: list[RequirementResult] = []
    lacking = ""
    for requirement in requirements:
        result = requirement.not_tried(f"it needs {lacking}") if lacking else requirement.result()
        results.append(result)
        if result.required and not result.ok and not lacking:
            lacking = requirement.name
    return [asdict(result) for result in results]


MPTCP = "MPTCP"
"""The name of a capability: subflows by every address that a host announces."""

_NODE = "probe"
_TUN = "probe-tun"
_SYS_BPF = {"x86_64": 321}
_SYS_BPF_GENERIC = 280
"""Number of bpf(2): asm-generic/unistd.h, except for the architectures with tables of their own."""

_BPF_PROG_LOAD = 5
_BPF_PROG_TYPE_SCHED_CLS = 3
_PASS_ALL = struct.pack("=BBhiBBhi", 0xB7, 0, 0, -1, 0x95, 0, 0, 0)
"""r0 = TC_ACT_UNSPEC; exit."""

_IFINDEX, _PEER_IFINDEX = 100, 101
_UN = routes.Route(locator(usid_of(Role.T0, 0, 0)), _IFINDEX, action=routes.UN)
_DT6 = routes.Route(IPv6Network("5f00:0:1::/48"), _IFINDEX, action=routes.DT6)
_ENCAP_RED = routes.Route(
    IPv6Network("5f00:0:3::/48"),
    _IFINDEX,
    action=routes.Encapsulation(SEG6_IPTUN_MODE_ENCAP_RED, (IPv6Address("5f00:0:2::"),)),
)
_NETEM_DELAY_NS = 1_000_000
_KERNELS = "Ubuntu 24.04, Debian 12 or 13, Fedora 41, or any kernel from 6.1 on with their options"


def require(*names: str) -> None:
    """Make sure that a fabric can be built here.

    Args:
        names: optional capabilities that are needed as well, such as `MPTCP`.

    Raises:
        MachineError: it cannot; names the first missing capability and the remedy.
    """
    capabilities = KernelCapabilities()
    optional = [requirement for requirement in capabilities.optional() if requirement.name in names]
    for result in examine((*capabilities.required(), *optional)):
        if not result.ok:
            raise MachineError(f"{result.name}: {result.detail}", result.remedy)


class KernelCapabilities:
    """Attempts that share a node's namespace, which one of the first ones makes."""

    def __init__(self) -> None:
        self._namespaces = NodeNamespaces()

    def required(self) -> tuple[Requirement, ...]:
        """What every fabric needs."""
        return (
            Requirement(
                "IPv6",
                "boot without ipv6.disable=1; in a container, enable IPv6 (sysctl "
                "net.ipv6.conf.all.disable_ipv6=0)",
                _ipv6,
            ),
            Requirement(
                "network namespaces", "run in a privileged container, or outside", self._namespace
            ),
            Requirement("veth links", "modprobe veth, or install linux-modules-extra", self._veth),
            Requirement(
                "uN routes (SRv6 End with NEXT-C-SID)",
                f"a kernel that has them: {_KERNELS}",
                lambda: self._install(_UN),
            ),
            Requirement("HTB", "modprobe sch_htb, or install linux-modules-extra", self._htb),
            Requirement("raw IPv6 sockets", "grant the container CAP_NET_RAW", _raw_sockets),
            Requirement("RPS", "a kernel with CONFIG_RPS, as every distribution has", self._rps),
        )

    def optional(self) -> tuple[Requirement, ...]:
        """What only some runs need, to be tried after `required`."""
        ordinary = "ordinary traffic over the fabric: ping, iperf3, TCP"
        kernel = f"a kernel that has it: {_KERNELS}"
        table = (
            ("End.DT6", kernel, lambda: self._install(_DT6), ordinary),
            ("encap.red", kernel, lambda: self._install(_ENCAP_RED), ordinary),
            (
                "cls_bpf",
                "modprobe cls_bpf, or a kernel with CONFIG_NET_CLS_BPF; in a container, CAP_BPF",
                self._cls_bpf,
                "attaching the link model",
            ),
            (
                "netem",
                "modprobe sch_netem, or install linux-modules-extra",
                self._netem,
                "nothing: receivers hold packets for the propagation delay; to compare with",
            ),
            (
                "libbpf",
                "apt install libbpf1, or dnf install libbpf",
                _libbpf,
                "loading the link model",
            ),
            (
                "link model",
                link_model.BUILD_REMEDY,
                _link_model,
                "ECN, trimming, priorities, loss, corruption",
            ),
            (
                "TUN devices",
                TUN_REMEDY,
                self._tun,
                "the transports tcp and mptcp; propagation delay of ordinary traffic",
            ),
            (
                MPTCP,
                f"a kernel with CONFIG_MPTCP: {_KERNELS}",
                self._mptcp,
                "comparing with MPTCP",
            ),
        )
        return tuple(Requirement(*row, required=False) for row in table)

    @property
    def _node(self) -> NodeNamespace:
        return self._namespaces[_NODE]

    # --- what every fabric needs --------------------------------------------------------------

    def _namespace(self) -> None:
        self._namespaces.create(_NODE)

    def _veth(self) -> None:
        end = Interface(SID_DEVICE, _IFINDEX, "02:00:00:00:00:01", self._node.fd)
        peer = Interface(f"{SID_DEVICE}-peer", _PEER_IFINDEX, "02:00:00:00:00:02", self._node.fd)
        up = requests.set_link(_IFINDEX, SID_DEVICE, up=True)
        self._node.netlink.send([requests.new_veth(end, peer, LINK_MTU), up])

    def _htb(self) -> None:
        shape = Shape(10_000_000, 100_000)
        self._node.netlink.send([*shaping.attach(_IFINDEX, shape), shaping.blackhole(_IFINDEX)])

    def _rps(self) -> None:
        sysfs = Path("/run/sys")
        sysfs.mkdir()
        with self._node.entered():
            namespaces.mount("sysfs", str(sysfs), "sysfs")
        queue = sysfs / "class/net" / SID_DEVICE / "queues/rx-0"
        with as_root():
            (queue / "rps_cpus").write_text("1", encoding="ascii")

    # --- what only some runs need -------------------------------------------------------------

    def _install(self, route: routes.Route) -> str | None:
        """Install a route; returns what the kernel has installed instead, if it has."""
        netlink = self._node.netlink
        netlink.send([routes.install_route(route, str)])
        installed = [r for r in routes.read_routes(netlink) if r.destination == route.destination]
        if installed == [route]:
            return None
        return f"the kernel installed {', '.join(r.text(str) for r in installed) or 'nothing'}"

    def _cls_bpf(self) -> None:
        program = _load_program()
        try:
            self._node.netlink.send(shaping.attach_model(_PEER_IFINDEX, program, program))
        finally:
            os.close(program)

    def _netem(self) -> None:
        delay = {"delay": _NETEM_DELAY_NS // shaping.TICK_NS, "limit": 1000}
        attach = requests.new_qdisc(
            _PEER_IFINDEX,
            "netem",
            handle=shaping.HTB_HANDLE,
            parent=TC_H_ROOT,
            attributes=[("TCA_OPTIONS", delay)],
        )
        self._node.netlink.send([attach])

    def _tun(self) -> None:
        with self._node.entered():
            device = open_tun(_TUN)
            try:
                ifindex = socket.if_nametoindex(_TUN)
                route = routes.Route(IPv6Network("5f00:0:4::/48"), ifindex)
                up = requests.set_link(ifindex, _TUN, up=True)
                self._node.netlink.send([up, routes.install_route(route, str)])
            finally:
                os.close(device)

    def _mptcp(self) -> None:
        with self._node.entered(), GenericNetlink(_NODE) as generic:
            socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_MPTCP).close()
            generic.announce_to_mptcp_peers([IPv6Address("5f00:0:5::")])


def _ipv6() -> str | None:
    return None if Path("/proc/sys/net/ipv6").is_dir() else "the kernel has it switched off"


def _raw_sockets() -> None:
    for protocol in (socket.IPPROTO_RAW, socket.IPPROTO_IPV6):
        socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol).close()


def _load_program() -> int:
    """Load a minimal program that passes every packet; returns its descriptor."""
    code = ctypes.create_string_buffer(_PASS_ALL)
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "=IIQQ104x",
        _BPF_PROG_TYPE_SCHED_CLS,
        len(_PASS_ALL) // 8,
        ctypes.addressof(code),
        ctypes.addressof(licence),
    )
    number = _SYS_BPF.get(platform.machine(), _SYS_BPF_GENERIC)
    pointer = ctypes.c_char_p(attributes)
    return system_call("bpf", _BPF_PROG_LOAD, pointer, len(attributes), number=number)


def _libbpf() -> None:
    ctypes.CDLL(link_model.LIBRARY)


def _link_model() -> None:
    if missing := link_model.missing():
        raise missing
