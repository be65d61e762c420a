"""Figures of a student's own run that no metric gives."""

import polars as pl

from testbed.studies.labs.evidence import Evidence


def lost(lab: Evidence) -> int:
    """How many packets were lost."""
    return lab.frame("failure", "losses").filter(~pl.col("spurious")).height
