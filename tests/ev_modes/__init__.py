"""Tests of `testbed/emulation/ev_modes.py`."""
