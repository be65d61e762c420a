"""The event stream of a run: its records, and how they are made of what a run records."""
