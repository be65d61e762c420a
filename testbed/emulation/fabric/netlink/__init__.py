"""The kernel's network configuration over netlink: messages, sockets, requests."""
