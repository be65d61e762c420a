"""Mininet's nodes as named network namespaces; a node gets a shell when it is first needed."""

import codecs
import os
import pty
import select
import sys
from pathlib import Path
from typing import Any

from mininet.node import Host, Node, Switch

from testbed.emulation.fabric.interfaces import write_sysctl
from testbed.emulation.fabric.netlink.namespaces import NodeNamespaces
from testbed.sandbox.namespaces import NETNS_DIR

PROMPT = chr(127)
"""The character by which Mininet recognizes the end of a command's output."""


class NamespaceNode(Node):  # type: ignore[misc] # Mininet is untyped
    """A node that is a named namespace of this sandbox.

    Attributes:
        namespace: the namespace.
        environment: variables of the programs that its shell runs.
    """

    shell: Any  # Mininet's own

    @classmethod
    def checkSetup(cls) -> None:  # noqa: N802 - Mininet's name
        """Check nothing: mnexec and ifconfig, which Mininet needs, are not used."""

    def __init__(self, name: str, namespaces: NodeNamespaces, **params: Any) -> None:
        """Make the namespace; no shell yet."""
        self._namespaces = namespaces
        self.environment: dict[str, str] = {}
        self.namespace = namespaces.create(name)
        with self.namespace.entered():
            for key, value in _QUIET.items():
                write_sysctl(key, value)
        super().__init__(name, **{**params, "inNamespace": True})

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802 - Mininet's name
        """Do nothing: Mininet's constructor calls this, but most nodes never need a shell."""

    def open_shell(self) -> None:
        """Start the node's shell, if it has none."""
        if self.shell is not None:
            return
        self.master, self.slave = pty.openpty()
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        command = ["setsid", "--ctty", *self.enter_command, "env", f"PS1={PROMPT}", f"PATH={path}"]
        command += [f"{name}={value}" for name, value in self.environment.items()]
        command += ["bash", "--norc", "--noediting", "-is", f"mininet:{self.name}"]
        self.shell = self._popen(command, stdin=self.slave, stdout=self.slave, stderr=self.slave)
        self.stdin = self.stdout = os.fdopen(self.master, "r")
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a program prints any byte
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
        """The beginning of a command line that runs the rest of it in the namespace."""
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

    def close_shell(self) -> int:
        """Take leave of a shell that has ended, as `exit` does; returns its exit status.

        The next command gets a new one.
        """
        status: int = self.shell.wait()
        self.cleanup()
        self.waiting = False
        return status

    def last_status(self) -> tuple[int, str]:
        """The exit status of the last command, and what others have printed meanwhile."""
        before, _, rest = self.cmd("echo status:$?:").partition("status:")
        status, _, after = rest.partition(":\r\n")
        return int(status), before + after

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """Start a process in the namespace."""
        kwargs.setdefault("mncmd", self.enter_command)
        return super().popen(*args, **kwargs)

    def defaultIntf(self) -> Any:  # noqa: N802 - Mininet's name
        """Return the interface of the lowest port: switches have no control interface."""
        return Node.defaultIntf(self)

    def configDefault(self, **_params: Any) -> None:  # noqa: N802 - Mininet's name
        """Do nothing: the fabric configures all nodes at once."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Do nothing: the fabric configures all nodes at once."""
        return {}

    def terminate(self) -> None:
        """End the shell and remove the namespace."""
        super().terminate()
        self._namespaces.remove(self.name)


_QUIET = {
    "ipv6/conf/all/disable_ipv6": "0",
    "ipv6/conf/default/disable_ipv6": "0",
    "ipv6/conf/default/addr_gen_mode": "1",  # no link-local addresses
    "ipv6/conf/default/accept_dad": "0",
    "ipv6/conf/default/dad_transmits": "0",
    "ipv6/conf/default/router_solicitations": "0",
    "ipv6/conf/default/accept_ra": "0",
}
"""Sysctls by which the kernel sends no packet of its own on any port."""


class FabricHost(NamespaceNode, Host):  # type: ignore[misc] # Mininet is untyped
    """A host: a NIC with one port in each plane."""


class FabricSwitch(NamespaceNode, Switch):  # type: ignore[misc] # Mininet is untyped
    """A switch: static uN routes in a namespace, and no process."""

    def start(self, _controllers: list[Any]) -> None:
        """Do nothing: the kernel forwards by the routes."""

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """Do nothing: the kernel removes interfaces with their namespace."""
