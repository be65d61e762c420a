"""Random schedules: how many a test is to draw."""

import os


def schedules(usually: int) -> int:
    """How many to draw: as many as usual, or as `TESTBED_SCHEDULES` says."""
    return int(os.environ.get("TESTBED_SCHEDULES", usually))
