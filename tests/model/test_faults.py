"""What a timeline makes happen, and when."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.faults.kinds import RAMP_STEPS, Fault
from testbed.model.faults.schedule import ScheduledFault, scheduled_faults

CLOS = Topology(name="clos", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)
S, MS = 10**9, 10**6


def fault(kind: str, target: object = "p0_t0_0--p0_t1_1", **more: Any) -> Fault:
    scheduled: Fault = TypeAdapter(Fault).validate_python(
        {"kind": kind, "target": target, "at": "1 s", "for": "2 s"} | more
    )
    return scheduled


def only_fault(kind: str, target: object = "p0_t0_0--p0_t1_1", **more: Any) -> ScheduledFault:
    (scheduled,) = scheduled_faults(CLOS, [fault(kind, target, **more)], 10 * S, seed=1)
    return scheduled


def course(scheduled: ScheduledFault) -> list[tuple[int, dict[str, Any]]]:
    return [(step.at_ns // MS, step.state.as_record) for step in scheduled.steps]


def state_at(scheduled: ScheduledFault, t_ns: int) -> Impairment:
    return next((s.state for s in reversed(scheduled.steps) if s.at_ns <= t_ns), HEALTHY)


def test_a_fault_begins_and_is_healed() -> None:
    assert course(only_fault("cut")) == [(1000, {"cut": True}), (3000, {})]
    assert course(only_fault("loss", probability=0.2)) == [(1000, {"loss": 0.2}), (3000, {})]
    assert only_fault("blackhole", "p0_t0_0>p0_t1_1").places == ("p0_t0_0>p0_t1_1",)
    assert only_fault("freeze", "h3").places == ("h3",)
    assert only_fault("ev_loss", probability=1.0, path="p2/t1_3").steps[0].state == Impairment(
        path_loss=1.0, path_bits=3 << 3 | 2
    )


def test_what_is_killed_stays_dead() -> None:
    entry: Fault = TypeAdapter(Fault).validate_python({"kind": "kill", "target": "h3", "at": "1 s"})
    (scheduled,) = scheduled_faults(CLOS, [entry], 10 * S, seed=1)
    assert course(scheduled) == [(1000, {"dead": True})]
    assert (scheduled.places, state_at(scheduled, 9 * S).deliverable_share) == (("h3",), 0.0)
    with pytest.raises(ValidationError, match="for"):
        fault("kill", "h3")


def test_a_ramp_rises_in_steps_to_the_full_degree() -> None:
    steps = only_fault("degrade", factor=0.2, ramp="1 s").steps
    assert len(steps) == RAMP_STEPS + 1
    rates = [step.state.rate for step in steps]
    assert rates[0] == pytest.approx(0.92)
    assert rates[-2:] == [pytest.approx(0.2), 1.0]
    assert rates[:-1] == sorted(rates[:-1], reverse=True)
    assert steps[RAMP_STEPS - 1].at_ns < 2 * S


def test_a_switch_that_reboots_is_silent_before_it_is_dark() -> None:
    both = {"cut": True, "blackhole": True}
    scheduled = only_fault("reboot", "p0_t1_1", silent="500 ms")
    assert course(scheduled) == [(1000, {"blackhole": True}), (1500, both), (3000, {})]
    assert len(scheduled.places) == 2 * CLOS.t0_per_plane
    assert course(only_fault("reboot", "p0_t1_1", silent="0 s")) == [(1000, both), (3000, {})]


def test_a_link_flaps() -> None:
    scheduled = course(only_fault("flap", period="800 ms", duty=0.25))
    down = {"cut": True}
    times = [1000, 1200, 1800, 2000, 2600, 2800, 3000]
    assert scheduled == [(t, down if i % 2 == 0 and t < 3000 else {}) for i, t in enumerate(times)]


@given(st.floats(0, 0.99), st.integers(0, 99))
def test_jitter_moves_flaps_and_ends_whole_in_time(jitter: float, seed: int) -> None:
    entry = fault("flap", period="100 ms", jitter=jitter)
    (scheduled,) = scheduled_faults(CLOS, [entry], 10 * S, seed)
    times = [step.at_ns for step in scheduled.steps]
    assert times == sorted(times)
    assert (times[0], times[-1], scheduled.steps[-1].state) == (S, 3 * S, HEALTHY)
    (again,) = scheduled_faults(CLOS, [entry], 10 * S, seed)
    assert again == scheduled


def counted(**more: Any) -> Fault:
    """A flap that is counted."""
    entry = {"kind": "flap", "target": "p0_t0_0--p0_t1_1", "at": "1 s", "period": "100 ms"} | more
    scheduled: Fault = TypeAdapter(Fault).validate_python(entry)
    return scheduled


@given(st.integers(1, 20), st.floats(0, 0.99), st.floats(0.01, 0.99), st.integers(0, 99))
def test_a_link_flaps_so_many_times(count: int, jitter: float, duty: float, seed: int) -> None:
    """Whatever the jitter: they fill as many periods."""
    entry = counted(count=count, jitter=jitter, duty=duty)
    (scheduled,) = scheduled_faults(CLOS, [entry], 10 * S, seed)
    assert [step.state.cut for step in scheduled.steps] == [True, False] * count + [False]
    times = [step.at_ns for step in scheduled.steps]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (S, S + count * 100 * MS)


def test_a_count_stands_for_its_time() -> None:
    """Also written out, as in a run's manifest, and at another dilation."""
    entry = counted(count=3)
    assert entry.heals_at_ns == 1300 * MS
    again: Fault = TypeAdapter(Fault).validate_json(entry.model_dump_json(by_alias=True))
    assert again == entry
    slower = counted(count=3, period="100000001 ns").stretched(1 / 3)
    slower_again: Fault = TypeAdapter(Fault).validate_json(slower.model_dump_json(by_alias=True))
    assert slower_again == slower
    with pytest.raises(ValidationError, match="nothing, or count times period: 300 ms"):
        counted(count=3, **{"for": "1 s"})
    for wrong in ({"count": 0}, {"count": "3"}, {"count": 3, "period": "soon"}, {"count": 20_000}):
        with pytest.raises(ValidationError) as raised:
            counted(**wrong)
        assert {error["loc"][-1] for error in raised.value.errors()} <= {"count", "period"}
    with pytest.raises(ValidationError, match="for"):
        counted()


def test_repetitions_fit_into_the_run_and_draw_anew() -> None:
    entry = fault("blackhole", "links", choose=2, every="2500 ms")
    scheduled = scheduled_faults(CLOS, [entry, fault("cut", "h0")], 10 * S, seed=1)
    assert [fault_.at_ns // MS for fault_ in scheduled] == [1000, 3500, 6000, 1000]
    assert [fault_.index for fault_ in scheduled] == [0, 1, 2, 3]
    assert len({fault_.places for fault_ in scheduled[:3]}) > 1
    twice = fault("blackhole", every="2500 ms", times=2)
    assert len(scheduled_faults(CLOS, [twice], 10 * S, seed=1)) == 2


def test_a_state_holds_until_the_next_step() -> None:
    scheduled = only_fault("reboot", "p0_t1_1", silent="500 ms")
    assert state_at(scheduled, S - 1) == HEALTHY
    assert state_at(scheduled, S).blackhole
    assert state_at(scheduled, 3 * S - 1).cut
    assert state_at(scheduled, 3 * S) == HEALTHY


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("loss", {}),
        ("loss", {"probability": 0}),
        ("loss", {"probability": 1.1}),
        ("loss", {"probability": 0.1, "ramp": "3 s"}),
        ("degrade", {"factor": 1.0}),
        ("cut", {"probability": 0.1}),
        ("cut", {"every": "2 s"}),
        ("cut", {"times": 3}),
        ("flap", {"period": "1 s", "duty": 1.0}),
        ("flap", {"period": "1 us"}),
        ("reboot", {"silent": "2 s"}),
        ("cut", {"choose": 0}),
        ("cut", {"target": []}),
        ("delay", {}),
    ],
)
def test_wrong_keys_are_refused(kind: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        fault(kind, **more)
