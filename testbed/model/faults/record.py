"""The record of a fault: one line of a run's `faults.jsonl`.

The controller and the simulator write it; the analysis and the lateness monitor read it. All times
are CLOCK_MONOTONIC in ns (in a simulated run, virtual time).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from testbed.model.faults.impairment import Impairment

FAULTS = "faults.jsonl"
"""The file in a run's directory that holds the records of its faults, one a line."""

OPENFLOW = "openflow"
"""The actuator of links that run through Open vSwitch, as `FaultRecord.actuator` names it."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a fault's course.

    Attributes:
        asked_ns: when it was requested: the time at which the timeline has it.
        after_ns: until then the state before it held.
        by_ns: from then on the new state held for every packet.
        state: the impairment from then on, as `Impairment.as_record`; empty if healthy.
    """

    asked_ns: int
    after_ns: int
    by_ns: int
    state: Mapping[str, Any]

    @property
    def impairment(self) -> Impairment:
        """The impairment from then on."""
        return Impairment(**self.state)


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """What happened to one fault. A time is None if the fault did not get that far.

    Attributes:
        index: its number among all faults of the run.
        kind: its kind.
        target: the names of what it struck, joined by commas.
        places: the directions of links, or the hosts, that it struck.
        actuator: `openflow`, `link`, `endpoint` or `simulator`; several are joined by +.
        asked_ns: when it was requested, by the timeline or by hand.
        effective_after_ns: until then it had no effect.
        effective_ns: from then on it affected every packet.
        heal_asked_ns: when its healing was requested.
        heal_after_ns: until then, at least, it affected every packet.
        healed_ns: from then on the places were healthy, apart from other faults.
        steps: every step of its course so far.
        proof: the evidence: carrier at both ends, and counters of the packets meanwhile.
        error: why it did not take effect or did not heal; None if all is well.
        entry: of a fault by hand, the entry of a timeline that makes it again, without its time.
    """

    index: int
    kind: str
    target: str
    places: tuple[str, ...]
    actuator: str
    asked_ns: int
    effective_after_ns: int | None = None
    effective_ns: int | None = None
    heal_asked_ns: int | None = None
    heal_after_ns: int | None = None
    healed_ns: int | None = None
    steps: tuple[StepRecord, ...] = ()
    proof: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uncertainty_ns(self) -> int | None:
        """Length of the interval in which it took effect; None if it did not."""
        if self.effective_ns is None or self.effective_after_ns is None:
            return None
        return self.effective_ns - self.effective_after_ns

    def as_json(self) -> dict[str, Any]:
        """The record as the values of a JSON object."""
        values = asdict(self)
        if not self.entry:
            del values["entry"]
        return values

    def to_line(self) -> str:
        """The record as a line of `faults.jsonl`."""
        return json.dumps(self.as_json()) + "\n"

    @staticmethod
    def from_line(line: str) -> "FaultRecord":
        """Read a line of `faults.jsonl`.

        Raises:
            pydantic.ValidationError: it is not such a record.
        """
        return _reader().validate_json(line)


@cache
def _reader() -> TypeAdapter[FaultRecord]:
    return TypeAdapter(FaultRecord)
