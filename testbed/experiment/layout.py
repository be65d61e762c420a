"""Names below a run directory that both sides of a run use."""

RAW = "raw"
"""Where processes record while the run lasts."""
