"""One run from beginning to end: sandbox, fabric, endpoints, faults, records."""

from testbed.experiment.experiment import Experiment
from testbed.experiment.outside import run_experiment

__all__ = ["Experiment", "run_experiment"]
