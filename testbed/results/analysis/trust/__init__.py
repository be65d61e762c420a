"""Whether a run can be trusted: the verdict, and what it looks at."""
