"""What hosts send, of what their ports carry of payload."""

from statistics import mean

from testbed import Result
from testbed.studies.paper.experiments.drawing import PORTS_GBPS, hosts_bps


def _fractions(run: Result) -> list[float]:
    """Of each host, all its queue pairs together."""
    of_port = run.data.topology.port_rate_bps * run.data.scenario.transport.payload_share
    return [rate / of_port for rate in hosts_bps(run).values()]


def slowest_gbps(run: Result) -> float:
    """The slowest host, in Gb/s at full speed, headers included."""
    return min(_fractions(run)) * PORTS_GBPS


def slowest_fraction(run: Result) -> float:
    """The slowest host."""
    return min(_fractions(run))


def fastest_fraction(run: Result) -> float:
    """The fastest host."""
    return max(_fractions(run))


def mean_fraction(run: Result) -> float:
    """The mean of all hosts."""
    return mean(_fractions(run))
