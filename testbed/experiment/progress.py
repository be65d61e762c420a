"""How a run tells what it is doing."""

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Told what the run is doing and how much of it is done, from 0 to 1."""
