"""Entropy values: their states, the rotation, probes and trust."""
