"""Ordinary traffic (ping, TCP, iperf3) over the same paths, with the fabric's propagation delay."""
