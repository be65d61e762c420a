"""The emulated fabric: namespaces, links, SRv6 routes, and what carries faults on them."""
