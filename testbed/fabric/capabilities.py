"""What this machine can do, found by trying it in a throwaway sandbox.

Nothing is concluded from a version. Every attempt makes the real thing and reads it back, because
a kernel may accept a route and drop its flavour without a word.
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

from pyroute2.netlink.rtnl import RTM_GETQDISC, TC_H_ROOT

from testbed.fabric import routes
from testbed.fabric.layout import SID_DEVICE
from testbed.fabric.link_model import libbpf, link_model, shaping
from testbed.fabric.netlink import requests
from testbed.fabric.netlink.messages import SEG6_IPTUN_MODE_ENCAP_RED, QdiscMessage
from testbed.fabric.netlink.requests import Interface
from testbed.fabric.netlink.socket import Netlink
from testbed.fabric.ordinary import tun
from testbed.model.errors import MachineError, TestbedError
from testbed.model.fabric.addressing import Role, locator, usid_of
from testbed.model.fabric.shape import Shape
from testbed.model.fabric.topology import LINK_MTU
from testbed.sandbox import namespaces
from testbed.sandbox.processes import ProcessFailedError, call

_NODE = "probe"
_TUN = "probe-tun"
_IPPROTO_MPTCP = 262
_SYS_BPF = {"x86_64": 321}
_SYS_BPF_GENERIC = 280
"""Number of bpf(2): asm-generic/unistd.h, but for the architectures with tables of their own."""

_BPF_PROG_LOAD = 5
_BPF_PROG_TYPE_SCHED_CLS = 3
_PASS_ALL = struct.pack("=BBhiBBhi", 0xB7, 0, 0, -1, 0x95, 0, 0, 0)
"""r0 = TC_ACT_UNSPEC; exit."""

_IFINDEX, _PEER_IFINDEX = 100, 101
_NETEM_DELAY_NS = 1_000_000
_KERNELS = "Ubuntu 24.04, Debian 12 or 13, Fedora 41, or any kernel from 6.1 on with their options"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One thing that this machine may be able to do.

    Attributes:
        name: what it is, short.
        remedy: what to install or change where it is missing.
        run: does it; raises OSError or TestbedError, or returns what is wrong.
        needed_for: what cannot be done without it.
        required: whether nothing at all can be run without it.
    """

    name: str
    remedy: str
    run: Callable[[], str | None]
    needed_for: str = "every run"
    required: bool = True

    def try_it(self) -> "Finding":
        """Do it and tell how it went."""
        try:
            wrong = self.run()
        except (OSError, TestbedError) as error:
            wrong = str(error).split("\n", maxsplit=1)[0]
        return self._found(wrong)

    def not_tried(self, reason: str) -> "Finding":
        """Tell that what it builds on is missing."""
        return self._found(f"not tried: {reason}")

    def _found(self, wrong: str | None) -> "Finding":
        remedy = "" if wrong is None else self.remedy
        return Finding(
            self.name, wrong is None, wrong or "", self.needed_for, remedy, required=self.required
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """How an attempt went.

    Attributes:
        name: what was tried.
        ok: whether this machine can do it.
        detail: what is wrong, or what was measured.
        needed_for: what cannot be done without it.
        remedy: what to install or change; empty where nothing need be.
        required: whether nothing at all can be run without it.
    """

    name: str
    ok: bool
    detail: str
    needed_for: str
    remedy: str
    required: bool


_ROOT = Attempt("root", "run as root, such as with sudo", lambda: None)
_SANDBOX = Attempt(
    "PID, network and mount namespaces",
    "run outside a container, or in a privileged one (docker run --privileged)",
    lambda: None,
)


def require() -> None:
    """Make sure that a fabric can be built here.

    Raises:
        MachineError: it cannot; names the first thing missing and the remedy.
    """
    missing = probe()
    if missing:
        raise missing[0]


def probe() -> list[MachineError]:
    """Try all that a fabric needs and return what is missing first, if anything is."""
    missing = next((found for found in examine(_attempts()) if not found.ok), None)
    if missing is None:
        return []
    return [MachineError(f"{missing.name}: {missing.detail}", missing.remedy)]


def examine(attempts: Sequence[Attempt]) -> list[Finding]:
    """Make attempts in a throwaway sandbox, after root and the sandbox itself.

    They are made in their order, in the sandbox's own namespaces. Each builds on the required ones
    before it: where one of those fails, the rest is not tried.
    """
    if os.geteuid() != 0:
        reason = "it needs root"
        root = _ROOT._found("namespaces need it")  # noqa: SLF001 - of this module
        return [root, *(attempt.not_tried(reason) for attempt in (_SANDBOX, *attempts))]
    try:
        findings = call(lambda: _try_all(attempts))
    except ProcessFailedError:
        sandbox = _SANDBOX._found("they cannot be made")  # noqa: SLF001 - of this module
        rest = [attempt.not_tried("it needs namespaces") for attempt in attempts]
        return [_ROOT.try_it(), sandbox, *rest]
    return [_ROOT.try_it(), _SANDBOX.try_it(), *(Finding(**finding) for finding in findings)]


def _try_all(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    findings: list[Finding] = []
    lacking = ""
    for attempt in attempts:
        found = attempt.not_tried(f"it needs {lacking}") if lacking else attempt.try_it()
        findings.append(found)
        if found.required and not found.ok and not lacking:
            lacking = attempt.name
    return [asdict(finding) for finding in findings]


def everything() -> tuple[Attempt, ...]:
    """All attempts that are made in a sandbox: what a fabric needs, then what goes beyond it."""
    return (*_attempts(), *_more())


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


def _more() -> tuple[Attempt, ...]:
    ordinary = "ordinary traffic over the fabric: ping, iperf3, TCP"
    kernel = f"a kernel that has it: {_KERNELS}"
    return (
        Attempt("End.DT6", kernel, _dt6, ordinary, required=False),
        Attempt("encap.red", kernel, _encap_red, ordinary, required=False),
        Attempt(
            "cls_bpf",
            "modprobe cls_bpf, or a kernel with CONFIG_NET_CLS_BPF; in a container, CAP_BPF",
            _cls_bpf,
            "attaching the link model",
            required=False,
        ),
        Attempt(
            "netem",
            "modprobe sch_netem, or install linux-modules-extra",
            _netem,
            "nothing: receivers hold packets for the propagation delay; to compare with",
            required=False,
        ),
        Attempt(
            "libbpf",
            "apt install libbpf1, or dnf install libbpf",
            _libbpf,
            "loading the link model",
            required=False,
        ),
        Attempt(
            "link model",
            link_model.BUILD_REMEDY,
            _link_model,
            "ECN, trimming, priorities, loss, corruption",
            required=False,
        ),
        Attempt(
            "TUN devices",
            tun.REMEDY,
            _tun,
            "the transports tcp and mptcp; propagation delay of ordinary traffic",
            required=False,
        ),
        Attempt(
            "MPTCP",
            "sysctl net.mptcp.enabled=1, or a kernel with CONFIG_MPTCP",
            _mptcp,
            "comparing with MPTCP",
            required=False,
        ),
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
    return locator(usid_of(Role.T0, 0, 0))


def _htb() -> str | None:
    with Netlink.at(_NODE) as netlink:
        shape = Shape(10_000_000, 100_000)
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


# --- beyond what a fabric needs ---------------------------------------------------------------


def _install(wanted: routes.Route) -> str | None:
    with Netlink.at(_NODE) as netlink:
        netlink.send([routes.install_route(wanted, str)])
        if wanted not in set(routes.read_routes(netlink)):
            return "the kernel installed something else"
    return None


def _dt6() -> str | None:
    return _install(routes.Route(IPv6Network("5f00:0:1::/48"), _IFINDEX, action=routes.DT6))


def _encap_red() -> str | None:
    segments = (IPv6Address("5f00:0:2::"),)
    action = routes.Encapsulation(SEG6_IPTUN_MODE_ENCAP_RED, segments)
    return _install(routes.Route(IPv6Network("5f00:0:3::/48"), _IFINDEX, action=action))


def _cls_bpf() -> str | None:
    program = _load_program()
    try:
        with Netlink.at(_NODE) as netlink:
            netlink.send(shaping.attach_model(_PEER_IFINDEX, program, program))
    finally:
        os.close(program)
    return None


def _netem() -> str | None:
    delay = {"delay": _NETEM_DELAY_NS // shaping.TICK_NS, "limit": 1000}
    attach = requests.new_qdisc(
        _PEER_IFINDEX,
        "netem",
        handle=shaping.HTB_HANDLE,
        parent=TC_H_ROOT,
        attributes=[("TCA_OPTIONS", delay)],
    )
    with Netlink.at(_NODE) as netlink:
        netlink.send([attach])
        found = [
            one.get_attr("TCA_OPTIONS")["delay"]
            for one in netlink.dump(QdiscMessage(), RTM_GETQDISC)
            if one["index"] == _PEER_IFINDEX and one.get_attr("TCA_KIND") == "netem"
        ]
    return None if found == [delay["delay"]] else f"the kernel installed {found or 'nothing'}"


def _load_program() -> int:
    """Load a program that passes everything on, as small as they get; returns its descriptor."""
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
    call = ctypes.CDLL(None, use_errno=True).syscall
    fd = call(number, _BPF_PROG_LOAD, ctypes.c_char_p(attributes), len(attributes))
    if fd < 0:
        code_ = ctypes.get_errno()
        raise OSError(code_, f"bpf: {os.strerror(code_)}")
    return int(fd)


def _libbpf() -> str | None:
    ctypes.CDLL(libbpf.LIBRARY)
    return None


def _link_model() -> str | None:
    if missing := link_model.missing():
        raise missing
    return None


def _tun() -> str | None:
    with namespaces.entered_by_name(_NODE):
        device = tun.open_tun(_TUN)
        try:
            ifindex = socket.if_nametoindex(_TUN)
            with Netlink(_NODE) as netlink:
                netlink.send([requests.set_link(ifindex, _TUN, up=True)])
                to = IPv6Network("5f00:0:4::/48")
                netlink.send([routes.install_route(routes.Route(to, ifindex), str)])
        finally:
            os.close(device)
    return None


def _mptcp() -> str | None:
    socket.socket(socket.AF_INET6, socket.SOCK_STREAM, _IPPROTO_MPTCP).close()
    return None
