"""Steps of a job per real us, while its only fault is in force and after it; without one of all."""

from testbed import Result
from testbed.studies.paper.experiments.failover import mean_step_us


def steps_during_per_us(run: Result) -> float:
    """Those that the fault touches."""
    return 1 / mean_step_us(run, "during")


def steps_after_per_us(run: Result) -> float:
    """Those that begin after it."""
    return 1 / mean_step_us(run, "after")


def errors_count(run: Result) -> int:
    """Queue pairs in error."""
    return run.summary.qps_in_error
