"""The network namespaces of a fabric's nodes, as one process has them open."""

import os
from contextlib import AbstractContextManager

from testbed.emulation.fabric.netlink.socket import Netlink
from testbed.model.closeable import Closeable
from testbed.sandbox import namespaces


class NodeNamespace(Closeable):
    """A node's network namespace: the only owner of its descriptor and of its netlink socket.

    Attributes:
        fd: descriptor of the namespace.
        netlink: an rtnetlink socket in it.
    """

    def __init__(self, name: str, fd: int) -> None:
        """Open the socket; the descriptor belongs to this object from here on."""
        self.fd = fd
        with self.entered():
            self.netlink = Netlink(name)

    def entered(self) -> AbstractContextManager[None]:
        """Be in the namespace for the duration of a block."""
        return namespaces.entered(self.fd)

    def close(self) -> None:
        """Close the socket and the descriptor."""
        self.netlink.close()
        os.close(self.fd)


class NodeNamespaces(Closeable):
    """The namespaces of this sandbox's nodes by name, each opened at its first use and once."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._open: dict[str, NodeNamespace] = {}

    def __getitem__(self, name: str) -> NodeNamespace:
        """Return a node's namespace.

        Raises:
            OSError: there is no namespace of that name.
        """
        if name not in self._open:
            self._open[name] = NodeNamespace(name, namespaces.open_netns(name))
        return self._open[name]

    def create(self, name: str) -> NodeNamespace:
        """Make a namespace for a node."""
        self._open[name] = NodeNamespace(name, namespaces.create_netns(name))
        return self._open[name]

    def remove(self, name: str) -> None:
        """Close a node's namespace and remove its name; the kernel then removes the namespace."""
        self._open.pop(name).close()
        namespaces.unmount(str(namespaces.NETNS_DIR / name))
        (namespaces.NETNS_DIR / name).unlink()

    def close(self) -> None:
        """Close all that are open."""
        for namespace in self._open.values():
            namespace.close()
        self._open.clear()
