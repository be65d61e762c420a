"""From raw records of a run to its metrics, verdict, figures and report."""
