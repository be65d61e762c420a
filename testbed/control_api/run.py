"""The requests to one run: for its faults and for its hosts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from testbed.control_api.faults import Answer, FaultRequests, Faults
from testbed.control_api.operator import PATH as OPERATOR
from testbed.control_api.operator import operate
from testbed.model.errors import Problem
from testbed.model.fabric.topology import Topology
from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FaultRecord
from testbed.model.operator.commands import Command


class Injection(Protocol):
    """The faults of a simulated fabric."""

    def inject(self, fault: Fault, t0_ns: int) -> FaultRecord | Problem:
        """Begin a fault now; or say with what it conflicts."""

    def heal(self, index: int) -> FaultRecord | None:
        """Heal a fault now; None if it is not in force."""

    def records(self) -> Sequence[FaultRecord]:
        """Every fault that has taken effect."""


class Simulated(Protocol):
    """A run on a simulated fabric."""

    @property
    def faults(self) -> Injection:
        """Its faults."""

    def operate(self, command: Command) -> dict[str, Any]:
        """Carry out an operator's command."""


class _SimulatedFaults:
    """The faults of a simulated fabric, as requests want them."""

    def __init__(self, faults: Injection, t0_ns: int) -> None:
        self._faults = faults
        self._t0_ns = t0_ns

    def records(self) -> Mapping[int, FaultRecord]:
        return {record.index: record for record in self._faults.records()}

    def inject(self, fault: Fault) -> FaultRecord | Problem:
        return self._faults.inject(fault, self._t0_ns)

    def heal(self, index: int) -> FaultRecord | None:
        return self._faults.heal(index)


class RunRequests:
    """Answers the requests to one run."""

    def __init__(
        self, topology: Topology, faults: Faults, operate: Callable[[str], Answer]
    ) -> None:
        """Answer for one fabric; `operate` carries out the operator's command of a body."""
        self._faults = FaultRequests(topology, faults)
        self._operate = operate

    @classmethod
    def of_simulated(cls, topology: Topology, run: Simulated, t0_ns: int) -> Self:
        """Those to a run on a simulated fabric that starts at `t0_ns`."""
        faults = _SimulatedFaults(run.faults, t0_ns)
        return cls(topology, faults, lambda body: operate(body, topology, run.operate))

    def answer(self, method: str, path: str, body: str = "") -> Answer:
        """Do what a request asks for, or say why not."""
        if method == "POST" and path.rstrip("/") == OPERATOR:
            return self._operate(body)
        return self._faults.answer(method, path, body)
