"""What an incast leaves to its victim, and how evenly its senders share."""

from testbed import Result
from testbed.studies.paper.experiments import incast


def victim_fraction(run: Result) -> float:
    """The victim's rate at the end of the run, of what its port carries of payload."""
    return incast.victim(run)


def evenness(run: Result) -> float:
    """The smallest share of a sender over the largest, after the first bursts."""
    return incast.smallest_of_largest(run)
