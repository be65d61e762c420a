"""Benchmarks of the emulated fabric."""
