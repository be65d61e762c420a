"""Comparison of runs: what is compared with what, and the rows of the table."""
