"""Processes and Linux namespaces: everything that a run makes disappears with its sandbox."""
