"""Mininet on the fabric: its nodes and links, and its prompt."""
