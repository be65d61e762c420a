"""The work of a host, shared by the emulation's endpoint and the simulator."""
