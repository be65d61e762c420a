"""Benchmarks in the simulator."""
