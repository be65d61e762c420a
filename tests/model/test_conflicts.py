"""What keeps a fault by hand from beginning: one of its kind at the same place."""

from dataclasses import replace

from pydantic import TypeAdapter

from testbed.model.faults.checks import conflict
from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FaultRecord
from testbed.model.faults.schedule import ScheduledFault, schedule_fault
from tests.controller.test_plan import FABRIC_LINK, NIC_LINK, TINY, fault, struck

S = 10**9


def by_hand(entry: Fault, at_s: int = 10) -> ScheduledFault:
    """A fault that is to begin so long after the start of the run."""
    return schedule_fault(TINY, entry, 7, at_s * S, "x")


def begun(scheduled: ScheduledFault) -> FaultRecord:
    return FaultRecord(
        scheduled.index,
        scheduled.kind,
        scheduled.target,
        scheduled.places,
        "link",
        scheduled.at_ns,
        1,
        2,
    )


BLACKHOLE = fault(FABRIC_LINK)


def test_one_that_is_in_force_is_in_the_way_until_it_is_healed() -> None:
    """At a link of it, whatever it strikes besides; of one kind only."""
    (plane,) = struck(fault("p0"))
    problem = conflict(by_hand(BLACKHOLE), [begun(plane)], ())
    assert problem is not None
    assert problem.found == f"blackhole of {FABRIC_LINK}"
    assert "fault 0 is in force at p0_t0_0>p0_t1_1" in problem.expected
    assert "heal fault 0" in problem.remedy
    assert conflict(by_hand(fault(FABRIC_LINK, kind="cut")), [begun(plane)], ()) is None
    assert conflict(by_hand(fault("p1")), [begun(plane)], ()) is None
    assert conflict(by_hand(BLACKHOLE), [replace(begun(plane), healed_ns=3)], ()) is None
    assert conflict(by_hand(BLACKHOLE), [replace(begun(plane), error="no")], ()) is None


def test_losses_of_two_paths_do_not_meet() -> None:
    """Of which a link would have lost the packets of one, at the chance of both."""
    losses = [
        fault(NIC_LINK, kind="ev_loss", path=f"p0/t1_{t1}", probability=0.5) for t1 in range(2)
    ]
    (scheduled,) = struck(losses[0])
    assert conflict(by_hand(losses[1]), [begun(scheduled)], ()) is not None


def test_one_that_is_due_is_in_the_way_of_what_lasts_until_then() -> None:
    """As in a timeline: what touches, meets."""
    due = struck(fault(FABRIC_LINK, "14 s"))
    problem = conflict(by_hand(fault("p0_t1_1", duration="5 s")), (), due)
    assert problem is not None
    assert "affects p0_t0_0>p0_t1_1 in 4 s" in problem.expected
    assert conflict(by_hand(fault(FABRIC_LINK, duration="4 s")), (), due) is not None
    assert conflict(by_hand(fault(FABRIC_LINK, duration="3 s")), (), due) is None


def test_what_is_dead_is_not_killed_again() -> None:
    """It never heals, so that nothing of its kind may come, now or later."""
    entry: Fault = TypeAdapter(Fault).validate_python({"kind": "kill", "target": "h0", "at": "0 s"})
    killed = by_hand(entry, 2)
    assert conflict(by_hand(entry), [begun(killed)], ()) is not None
    assert conflict(killed, (), [by_hand(entry)]) is not None
