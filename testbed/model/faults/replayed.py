"""A timeline that makes the faults of a run again, those by hand too."""

from collections.abc import Iterable
from typing import Any

from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FaultRecord
from testbed.model.scenario import Scenario
from testbed.model.units import exact_duration, parse_duration


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
    by_hand = [(r.asked_ns - t0_ns, _entry(r, t0_ns, until_ns)) for r in records if r.entry]
    entries = sorted([*planned, *by_hand], key=lambda entry: entry[0])
    return [entry for at_ns, entry in entries if until_ns is None or at_ns < until_ns]


def _entry(record: FaultRecord, t0_ns: int, until_ns: int | None) -> dict[str, Any]:
    """The entry of a fault by hand; if it was healed before `until_ns`, it lasts until then."""
    entry = {**record.entry, "at": exact_duration(record.asked_ns - t0_ns)}
    heal_ns = record.heal_asked_ns
    if "for" in entry and heal_ns is not None and (until_ns is None or heal_ns < t0_ns + until_ns):
        lasted_ns = heal_ns - record.asked_ns
        if lasted_ns < parse_duration(entry["for"]):
            entry.pop("count", None)  # a flap that was healed early lost carrier less often
        entry["for"] = exact_duration(lasted_ns)
    return entry
