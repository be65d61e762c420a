"""The Clustermapper on an emulated fabric: the agents' sockets, and the process that runs them."""
