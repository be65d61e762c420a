"""Names below a run directory that both sides of a run use."""

RAW = "raw"
"""Where processes record while the run lasts."""

PCAPS = "pcaps"
"""Where captured links' packets are, one file a link."""
