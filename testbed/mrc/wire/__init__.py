"""MRC on the wire: packets as values, and their bytes."""
