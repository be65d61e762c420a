"""From the records of a run to its metrics and its verdict."""
