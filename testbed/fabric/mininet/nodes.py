"""Mininet's nodes without a shell each: a named network namespace, and a shell when asked for."""

import os
import pty
import select
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mininet.node import Host, Node, Switch

from testbed.fabric.netlink.socket import Netlink
from testbed.sandbox import namespaces
from testbed.sandbox.namespaces import NETNS_DIR, create_netns

PROMPT = chr(127)
"""Mininet knows by this character that a command has ended."""


class NamespaceNode(Node):  # type: ignore[misc] # Mininet is untyped
    """A node that lives in a namespace of this sandbox.

    Attributes:
        netns: descriptor of the namespace.
        netlink: a socket in it.
    """

    sysctls: Mapping[str, str] = {}
    """What is written below /proc/sys/net when the namespace is made."""

    shell: Any  # Mininet's own

    @classmethod
    def checkSetup(cls) -> None:  # noqa: N802 - Mininet's name
        """Look for nothing: mnexec and ifconfig, which Mininet wants, are not used."""

    def __init__(self, name: str, **params: Any) -> None:
        """Make the namespace; no shell yet."""
        self.netns = create_netns(name)
        with namespaces.entered(self.netns):
            self.netlink = Netlink(name)
            for key, value in self.sysctls.items():
                write_sysctl(key, value)
        super().__init__(name, **{**params, "inNamespace": True})

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802 - Mininet's name
        """Start no shell: Mininet's constructor asks for one, most nodes never use it."""

    def open_shell(self) -> None:
        """Start the node's shell, if it has none."""
        if self.shell is not None:
            return
        self.master, self.slave = pty.openpty()
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        command = ["setsid", "--ctty", *self.enter_command, "env", f"PS1={PROMPT}", f"PATH={path}"]
        command += ["bash", "--norc", "--noediting", "-is", f"mininet:{self.name}"]
        self.shell = self._popen(command, stdin=self.slave, stdout=self.slave, stderr=self.slave)
        self.stdin = self.stdout = os.fdopen(self.master, "r")
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
        """What to put before a command so that it runs in the namespace."""
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

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """Start a process in the namespace."""
        kwargs.setdefault("mncmd", self.enter_command)
        return super().popen(*args, **kwargs)

    def defaultIntf(self) -> Any:  # noqa: N802 - Mininet's name
        """Return the interface of the lowest port: switches have no control interface."""
        return Node.defaultIntf(self)

    def configDefault(self, **_params: Any) -> None:  # noqa: N802 - Mininet's name
        """Configure nothing: the fabric does, for all nodes at once."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Configure nothing: the fabric does, for all nodes at once."""
        return {}

    def terminate(self) -> None:
        """End the shell and let go of the namespace."""
        super().terminate()
        if self.netns >= 0:
            self.netlink.close()
            os.close(self.netns)
            namespaces.unmount(str(NETNS_DIR / self.name))
            (NETNS_DIR / self.name).unlink()
            self.netns = -1


_QUIET = {
    "ipv6/conf/all/disable_ipv6": "0",
    "ipv6/conf/default/disable_ipv6": "0",
    "ipv6/conf/default/addr_gen_mode": "1",  # no link-local addresses
    "ipv6/conf/default/accept_dad": "0",
    "ipv6/conf/default/dad_transmits": "0",
    "ipv6/conf/default/router_solicitations": "0",
    "ipv6/conf/default/accept_ra": "0",
}
"""No packet of the kernel's own on any port."""


class FabricHost(NamespaceNode, Host):  # type: ignore[misc] # Mininet is untyped
    """A host: a NIC with one port in each plane."""

    sysctls = _QUIET


class FabricSwitch(NamespaceNode, Switch):  # type: ignore[misc] # Mininet is untyped
    """A switch: static uN routes in a namespace, and nothing that runs."""

    sysctls = _QUIET

    def start(self, _controllers: list[Any]) -> None:
        """Start nothing: the kernel forwards by the routes."""

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """Stop nothing: interfaces go with their namespace."""


def write_sysctl(key: str, value: str) -> None:
    """Write a sysctl of the network namespace that this thread is in.

    Args:
        key: path below /proc/sys/net.
        value: what to write.
    """
    fd = os.open(f"/proc/sys/net/{key}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
