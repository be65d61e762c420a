"""The process that runs in a host: sockets, clocks and an event loop around the MRC core."""
