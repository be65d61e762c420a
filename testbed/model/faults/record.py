"""The record of a fault: one line of a run's `faults.jsonl`.

The controller and the simulator write it; the analysis and the lateness monitor read it. All times
are CLOCK_MONOTONIC in ns (in a simulated run, virtual time).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from testbed.model.faults.impairment import Impairment
from testbed.model.faults.kinds import Fault
from testbed.model.scenario import Scenario
from testbed.model.units import exact_duration, parse_duration

FAULTS = "faults.jsonl"
"""The file in a run's directory that holds the records of its faults, one a line."""

OPENFLOW = "openflow"
"""The actuator of links that run through Open vSwitch, as `FaultRecord.actuator` names it."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a fault's course.

    Attributes:
        requested_ns: when it was requested: the time at which the timeline has it.
        after_ns: until then the state before it held.
        by_ns: from then on the new state held for every packet.
        state: the impairment from then on, as `Impairment.as_record`; empty if healthy.
    """

    requested_ns: int
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
        requested_ns: when it was requested, by the timeline or by hand.
        effective_after_ns: until then it had no effect.
        effective_ns: from then on it affected every packet.
        heal_requested_ns: when its healing was requested.
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
    requested_ns: int
    effective_after_ns: int | None = None
    effective_ns: int | None = None
    heal_requested_ns: int | None = None
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


# --------------------------------------------------------------------------------------------------
# A timeline that makes the faults of a run again, those by hand too.


def entry_of(fault: Fault) -> dict[str, Any]:
    """A fault by hand as an entry of a timeline, without its time."""
    return fault.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"at"})


def replayed_timeline(
    scenario: Scenario, records: Iterable[FaultRecord], t0_ns: int, until_ns: int | None = None
) -> list[dict[str, Any]]:
    """The entries of a timeline: those of the scenario, and the faults by hand, in order of time.

    Args:
        scenario: what was run.
        records: its faults.
        t0_ns: the start of the run, on the clock of the records.
        until_ns: faults and healings from this time of the run on are left out; None: none is.
    """
    planned = [
        (fault.at, fault.model_dump(mode="json", by_alias=True, exclude_none=True))
        for fault in scenario.timeline
    ]
    by_hand = [(r.requested_ns - t0_ns, _entry(r, t0_ns, until_ns)) for r in records if r.entry]
    entries = sorted([*planned, *by_hand], key=lambda entry: entry[0])
    return [entry for at_ns, entry in entries if until_ns is None or at_ns < until_ns]


def _entry(record: FaultRecord, t0_ns: int, until_ns: int | None) -> dict[str, Any]:
    """The entry of a fault by hand; if it was healed before `until_ns`, it lasts until then."""
    entry = {**record.entry, "at": exact_duration(record.requested_ns - t0_ns)}
    heal_ns = record.heal_requested_ns
    if "for" in entry and heal_ns is not None and (until_ns is None or heal_ns < t0_ns + until_ns):
        lasted_ns = heal_ns - record.requested_ns
        if lasted_ns < parse_duration(entry["for"]):
            entry.pop("count", None)  # a flap that was healed early lost carrier less often
        entry["for"] = exact_duration(lasted_ns)
    return entry
