"""A NIC's queue pairs learn late of a port that has failed, and at once of one that is back."""

from testbed.host.busy import PortRemap
from testbed.mrc import NEVER


def test_without_a_delay_nothing_is_held_back() -> None:
    remap = PortRemap(0)
    assert not remap.holds_back(1, up=False, now_ns=5)
    assert remap.deadline_ns == NEVER


def test_a_failure_is_due_after_the_delay() -> None:
    remap = PortRemap(100)
    assert remap.holds_back(1, up=False, now_ns=5)
    assert remap.holds_back(2, up=False, now_ns=50)
    assert remap.deadline_ns == 105
    assert [*remap.due(104)] == []
    assert [*remap.due(105)] == [1]
    assert remap.deadline_ns == 150
    assert [*remap.due(500)] == [2]
    assert [*remap.due(500)] == []
    assert remap.deadline_ns == NEVER


def test_a_port_that_is_back_before_has_not_failed() -> None:
    remap = PortRemap(100)
    remap.holds_back(1, up=False, now_ns=0)
    assert not remap.holds_back(1, up=True, now_ns=50)
    assert remap.deadline_ns == NEVER
    assert [*remap.due(1000)] == []
