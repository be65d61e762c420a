"""Tests of testbed.cli."""
