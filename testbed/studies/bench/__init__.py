"""Benchmarks: what this machine carries and how fast things happen, with repeats and spread."""
