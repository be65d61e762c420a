"""Applies faults of the kind `busy` to the queue pairs of a host."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from testbed.model.fabric.addressing import path_of_ev
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc import NEVER, NOT_BUSY, BusyState, NackReason, QueuePair


class _Connection(Protocol):
    """What is needed of a queue pair's connection."""

    @property
    def peer_node(self) -> Node:
        """The host at its other end."""

    @property
    def mrc(self) -> QueuePair | None:
        """The queue pair, if it is MRC's."""


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
        if connection.mrc is None:
            raise TypeError("only MRC's queue pairs can be busy")
        connection.mrc.set_busy(_busy_of(topology, host, connection.peer_node, state))


def refused_busy(connections: Iterable[_Connection]) -> int:
    """The number of packets that queue pairs have refused so far because they were busy."""
    qps = (connection.mrc for connection in connections)
    return sum(qp.refused_busy for qp in qps if qp is not None)


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


# --------------------------------------------------------------------------------------------------
# How long a NIC needs until its queue pairs leave a port that has failed.


class PortRemap:
    """Holds back the failures of a host's ports for a time; their return counts at once.

    A NIC moves all EVs of a failed port to others, which takes real ones seconds (MRC paper,
    section 3). Until then the queue pairs go on sending into the port.

    Attributes:
        deadline_ns: when the next failure is due; `NEVER` if none is held back.
    """

    def __init__(self, delay_ns: int) -> None:
        """Hold failures back for a delay in emulated ns; 0: not at all."""
        self._delay_ns = delay_ns
        self._due_ns: dict[int, int] = {}
        self.deadline_ns: int = NEVER

    def holds_back(self, plane: int, *, up: bool, now_ns: int) -> bool:
        """Note a change of the port of a plane; whether queue pairs learn of it later."""
        self._due_ns.pop(plane, None)
        is_held = not up and self._delay_ns > 0
        if is_held:
            self._due_ns[plane] = now_ns + self._delay_ns
        self._update()
        return is_held

    def due(self, now_ns: int) -> Iterator[int]:
        """Yield the planes whose ports' failures are due, each once."""
        for plane in [plane for plane, due_ns in self._due_ns.items() if due_ns <= now_ns]:
            del self._due_ns[plane]
            yield plane
        self._update()

    def _update(self) -> None:
        self.deadline_ns = min(self._due_ns.values(), default=NEVER)
