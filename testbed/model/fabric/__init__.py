"""A fabric as data: its topology, addresses, names, queues and the paths through it."""
