"""One run from beginning to end: sandbox, fabric, endpoints, faults, records."""
