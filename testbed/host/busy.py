"""Applies faults of the kind `busy` to the queue pairs of a host."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from testbed.model.fabric.addressing import path_of_ev
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc import NOT_BUSY, BusyState, NackReason, QueuePair


class _Connection(Protocol):
    """What is needed of a queue pair's connection."""

    @property
    def peer_node(self) -> Node:
        """The host at its other end."""

    @property
    def qp(self) -> object:
        """The queue pair."""


def set_busy(
    topology: Topology, host: Node, connections: Iterable[_Connection], state: Mapping[str, Any]
) -> None:
    """Set how every queue pair of a host treats arriving packets from now on.

    Args:
        topology: the fabric.
        host: the host.
        connections: its queue pairs.
        state: `Impairment.busy` of the host; empty: it is not busy.

    Raises:
        TypeError: they are not MRC's: no other transport can be busy.
    """
    for connection in connections:
        qp = connection.qp
        if not isinstance(qp, QueuePair):
            raise TypeError("only MRC's queue pairs can be busy")
        qp.set_busy(_busy_of(topology, host, connection.peer_node, state))


def refused_busy(connections: Iterable[_Connection]) -> int:
    """The number of packets that queue pairs have refused so far because they were busy."""
    qps = (connection.qp for connection in connections)
    return sum(qp.refused_busy for qp in qps if isinstance(qp, QueuePair))


def _busy_of(topology: Topology, host: Node, peer: Node, state: Mapping[str, Any]) -> BusyState:
    if not state:
        return NOT_BUSY
    path = state.get("skipped_path")

    def skips(ev: int) -> bool:
        return path_of_ev(topology, peer, host, ev).name == path

    refusal = state.get("refusal")
    return BusyState(
        penalty=state.get("penalty", 0),
        restores=not state.get("unrestored", False),
        refusal=NackReason[refusal.upper()] if refusal else None,
        share=state.get("refused", 1.0),
        skips=skips if path else None,
    )
