"""What queue pairs lose at the start of a run and afterwards."""

from math import inf

from testbed import Result
from testbed.studies.paper.experiments.drawing import losses
from testbed.studies.paper.experiments.failover import STARTUP_RTTS


def _first(run: Result) -> list[int]:
    """What each queue pair lost at the start."""
    return [losses(flow, 0.0, _border_s(run)) for flow in run.flows]


def _border_s(run: Result) -> float:
    return STARTUP_RTTS * run.data.base_rtt_s


def _later_per_s(run: Result) -> float:
    """What all together lost afterwards, per second of the run."""
    border, end = _border_s(run), run.data.end_s
    return sum(losses(flow, border, end) for flow in run.flows) / (end - border)


def worst_first_count(run: Result) -> int:
    """What the worst queue pair lost at the start."""
    return max(_first(run))


def later_fraction(run: Result) -> float:
    """What all lost per time afterwards, of what they lost at the start."""
    first = sum(_first(run))
    return _later_per_s(run) / (first / _border_s(run)) if first else inf


def later_per_nic(run: Result) -> float:
    """What a NIC lost per second afterwards, as it would be at full speed."""
    return _later_per_s(run) * run.summary.dilation / len({flow.flow.src for flow in run.flows})


def first_per_qp(run: Result) -> float:
    """What a queue pair lost per second of the start, as it would be at full speed."""
    first = _first(run)
    return sum(first) / len(first) / _border_s(run) * run.summary.dilation
