"""Congestion control: how many bytes may be in flight, and the RTT that it measures."""
