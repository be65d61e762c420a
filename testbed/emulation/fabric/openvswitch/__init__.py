"""Open vSwitch: its daemons and the wires through it."""
