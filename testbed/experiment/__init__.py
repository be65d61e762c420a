"""One run from beginning to end: sandbox, fabric, endpoints, faults, records."""

from testbed.experiment.outside import run_experiment

__all__ = ["run_experiment"]
