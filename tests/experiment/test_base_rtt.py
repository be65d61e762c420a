"""The base RTT: few samples where they agree, and never a late one."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.experiment.inside import SAMPLES, TOLERANCE, measure
from testbed.model.files.scenarios import load_scenario
from testbed.model.flows import base_rtt_flow, flows_of

MS = 1_000_000


@pytest.mark.parametrize(
    ("samples", "base", "taken"),
    [
        ([134.2, 134.0, 134.1], 134.1, 3),
        ([138, 133, 135], 135, 3),  # the first finds everything cold
        ([160, 134.2, 134.0, 134.1], 134.1, 4),  # the first was late
        ([134.2, 150, 134.0, 171, 134.1], 134.1, 5),
        ([150, 134.0, 150.1, 134.2, 134.1], 134.1, 5),  # two were late by the same time
        ([134, 140, 147, 154, 161, 169, 177], 154, SAMPLES),  # no three agree: of all of them
    ],
)
def test_it_takes_as_many_samples_as_it_needs(
    samples: list[float], base: float, taken: int
) -> None:
    rest = iter(samples)
    assert measure(lambda: round(next(rest) * MS)) == base * MS
    assert len(list(rest)) == len(samples) - taken


@given(
    true=st.lists(st.floats(130, 130 * (1 + TOLERANCE / 2)), min_size=3, max_size=SAMPLES),
    late=st.lists(st.floats(140, 1000), max_size=2),
    order=st.randoms(use_true_random=False),
)
def test_one_or_two_late_samples_do_not_count(
    true: list[float], late: list[float], order: Random
) -> None:
    samples = [*true, *late]
    order.shuffle(samples)
    rest = iter(samples)
    base_ns = measure(lambda: round(next(rest) * MS))
    assert base_ns in [round(sample * MS) for sample in true]


def test_it_is_measured_between_racks_where_any_flow_is() -> None:
    scenario = load_scenario("link-failure")
    flow = base_rtt_flow(scenario.topology, flows_of(scenario))
    assert scenario.topology.rack(flow.src) != scenario.topology.rack(flow.dst)
