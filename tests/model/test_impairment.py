"""Faults that act on one place at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.model.errors import RunFailedError
from testbed.model.faults.impairment import HEALTHY, ActiveFaults, Impairment, combined

SHARES = st.floats(0, 1).map(lambda x: round(x, 3))


def impairments() -> st.SearchStrategy[Impairment]:
    """States without loss on a chosen path, of which a place has one."""
    return st.builds(
        Impairment,
        cut=st.booleans(),
        blackhole=st.booleans(),
        loss=SHARES,
        corrupt=SHARES,
        rate=st.floats(0.01, 1),
        frozen=st.booleans(),
    )


@given(impairments(), impairments(), impairments())
def test_they_add_up_in_any_order(a: Impairment, b: Impairment, c: Impairment) -> None:
    one, other = combined([a, b, c]), combined([c, a, b])
    assert abs(one.loss - other.loss) < 1e-5
    assert abs(one.corrupt - other.corrupt) < 1e-5
    assert (one.cut, one.blackhole, one.rate) == (other.cut, other.blackhole, other.rate)
    assert combined([a, HEALTHY]).deliverable_share <= a.deliverable_share + 1e-5


@given(impairments(), impairments())
def test_more_faults_let_no_more_pass(a: Impairment, b: Impairment) -> None:
    assert (
        combined([a, b]).deliverable_share <= min(a.deliverable_share, b.deliverable_share) + 1e-5
    )


@given(st.lists(st.tuples(st.integers(0, 3), impairments()), max_size=20))
def test_healing_one_leaves_the_others(course: list[tuple[int, Impairment]]) -> None:
    in_force, last = ActiveFaults(), dict[int, Impairment]()
    for fault, state in course:
        in_force.put(fault, ("a>b",), state)
        last[fault] = state
        for heal in [f for f in last if f % 2]:
            in_force.put(heal, ("a>b",), HEALTHY)
            del last[heal]
        assert (
            abs(
                in_force.impairment_at("a>b").deliverable_share
                - combined(last.values()).deliverable_share
            )
            < 1e-5
        )
    assert in_force.impairment_at("b>a") == HEALTHY


def test_only_what_is_wrong_is_told() -> None:
    assert HEALTHY.as_record == {}
    assert Impairment(loss=0.1, cut=True).as_record == {"cut": True, "loss": 0.1}


def test_losses_on_one_path_add_up_and_on_two_do_not_go_together() -> None:
    """A place has room for one path: to mix them up would be told as in force and be wrong."""
    one, same = Impairment(path_loss=0.5, path_bits=8), Impairment(path_loss=0.2, path_bits=8)
    assert combined([one, same, Impairment(loss=0.1)]) == Impairment(
        loss=0.1, path_loss=0.6, path_bits=8
    )
    other = Impairment(path_loss=0.2, path_bits=16)
    for pair in ([one, other], [other, Impairment(cut=True), one]):
        with pytest.raises(RunFailedError, match="two paths"):
            combined(pair)
    in_force = ActiveFaults()
    in_force.put(0, ("a>b",), one)
    in_force.put(1, ("a>b",), other)
    with pytest.raises(RunFailedError):
        in_force.impairment_at("a>b")
    in_force.put(1, ("a>b",), HEALTHY)
    assert in_force.impairment_at("a>b") == one
