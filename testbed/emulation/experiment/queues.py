"""Samples what waits at the switches' ports, finely enough to see a queue rise and fall."""

import numpy as np

from testbed.emulation.fabric.link_model.link_model import LinkModel
from testbed.host.traffic import SAMPLES_PER_RTT
from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import Topology
from testbed.results.records import Recorder

LEAST_STEP_NS = 4_000_000
"""The shortest time between two samples: each wakes the first process of the run."""

LINK_SAMPLE_S = 0.25
"""The time between two samples of the counters of all links."""

FLUSH_NS = 100_000_000
"""The time between two flushes of the records, for programs that watch the run."""


def step_ns(topology: Topology) -> int:
    """Time between two samples."""
    return max(topology.propagation_rtt_ns // SAMPLES_PER_RTT, LEAST_STEP_NS)


class QueueSampler:
    """Records the queues that hold something; one pass over shared memory a sample."""

    def __init__(self, topology: Topology, model: LinkModel, recorder: Recorder) -> None:
        self._model = model
        self._recorder = recorder
        self._flush_due_ns = 0
        senders = (port for link in topology.links.values() for port in link.ports)
        self._switched = np.array([port.node.tier is not Tier.HOST for port in senders])
        self._waited = np.zeros(len(model.names), dtype=bool)

    def sample(self, now_ns: int) -> None:
        """Record every switch port where something waits, or did at the last sample."""
        if now_ns >= self._flush_due_ns:
            self._flush_due_ns = now_ns + FLUSH_NS
            self._recorder.flush()
        waiting = self._model.backlog_bytes()
        waits = (waiting > 0) & self._switched
        rows = np.flatnonzero(waits | self._waited)
        self._waited = waits
        if not len(rows):
            return
        records = self._model.records[rows]
        dropped = records["full_packets"] + records["full_priority_packets"]
        for row, backlog, marked, trimmed, lost in zip(
            rows.tolist(),
            waiting[rows].tolist(),
            records["marked_packets"].tolist(),
            records["trimmed_packets"].tolist(),
            dropped.tolist(),
            strict=True,
        ):
            name = self._model.names[row]
            self._recorder.append(now_ns, name, backlog, marked, trimmed, lost)
