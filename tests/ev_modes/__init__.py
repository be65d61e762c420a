"""Tests of `testbed/ev_modes`."""
