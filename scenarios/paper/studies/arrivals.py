"""The last hop's queue and rate while flows arrive, once both have settled after each arrival."""

import numpy as np

from testbed import Result
from testbed.results.analysis.delivery import Floats
from testbed.studies.paper.experiments.drawing import total_bps
from testbed.studies.paper.experiments.incast import CROWDED, backlog_bdp, settled


def _spans(run: Result, *, many: bool) -> list[tuple[float, float]]:
    spans = settled(run)
    return spans[CROWDED - 1 :] if many else spans[: CROWDED - 1]


def _backlogs(run: Result, *, many: bool) -> Floats:
    times, backlog = backlog_bdp(run)
    within = np.zeros(len(times), dtype=bool)
    for start, end in _spans(run, many=many):
        within |= (times >= start) & (times < end)
    return backlog[within]


def queue_few_bdp(run: Result) -> float:
    """The 99th percentile of the queue with few flows."""
    return float(np.percentile(_backlogs(run, many=False), 99))


def queue_many_bdp(run: Result) -> float:
    """The same with many flows."""
    return float(np.percentile(_backlogs(run, many=True), 99))


def empty_fraction(run: Result) -> float:
    """The share of samples in which the queue is empty, with many flows."""
    return float(np.mean(_backlogs(run, many=True) == 0))


def rate_fraction(run: Result) -> float:
    """What the receiver got with many flows, of what its port carries of payload."""
    spans = _spans(run, many=True)
    carried = run.data.topology.port_rate_bps * run.data.scenario.transport.payload_share
    seconds = sum(end - start for start, end in spans)
    bits = sum(total_bps(run.flows, start, end) * (end - start) for start, end in spans)
    return bits / seconds / carried
