"""Every shipped scenario, in virtual time: it comes to what it expects of itself."""

import os
from pathlib import Path

import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.runs.making import simulate_into

pytestmark = [pytest.mark.simulated, pytest.mark.long]

SCENARIOS = Path(__file__).parents[2] / "scenarios"
EMULATED_ONLY = {
    "link-failure-tcp",
    "link-failure-mptcp",
    "controller-death",
    "host-death",
    "host-freeze",
    "program",
    "torch-training",
}
"""The kernel's transports have no virtual time, the simulator no processes."""

SHORTER_S = {"chaos-long": 400, "clustermapper-long": 60}
"""What takes minutes is broken off; each of its faults has struck by then."""

LONG_S = {
    "chaos": 14,
    "chaos-long": 280,
    "clustermapper": 12,
    "clustermapper-long": 20,
    "degraded-links": 10,
}
"""These take longest: in full in a soak only; of their faults most have struck by then."""

QUIET_S = 3
"""What has no fault shows in this time what it shows."""

EVEN_S = {"incast": 10}
"""But its flows, which all begin with full windows, take longer to share evenly."""

STRETCHED = {"transceiver-flap": 0.6}
"""All times of these are so many times as long; as long as they are in a soak only. That of a grey
plane stays as it is: shorter, what is lost at once weighs more than its bound allows for."""

NAMES = sorted({path.stem for path in SCENARIOS.glob("*.yaml")} - EMULATED_ONLY)


def _shortened(name: str) -> Scenario:
    scenario = load_scenario(name)
    soak = bool(os.environ.get("TESTBED_SOAK"))
    if name in STRETCHED and not soak:
        return scenario.stretched(STRETCHED[name])
    shorter_s = SHORTER_S if soak else SHORTER_S | LONG_S
    if name not in shorter_s and scenario.timeline:
        return scenario
    duration = (shorter_s | EVEN_S).get(name, QUIET_S) * 10**9
    timeline = tuple(
        fault.model_copy(update={"times": None})
        for fault in scenario.timeline
        if fault.at < duration
    )
    return scenario.model_copy(update={"duration": duration, "timeline": timeline})


def _simulated(name: str, directory: Path) -> Summary:
    return simulate_into(directory, _shortened(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_meets_its_expectations(name: str, tmp_path: Path) -> None:
    summary = _simulated(name, tmp_path)
    assert (summary.verdict, summary.reasons) == ("trusted", ())
    assert summary.expectations, "a scenario that ships expects something"
    missed = [expectation for expectation in summary.expectations if not expectation.holds]
    assert not missed


def test_every_scenario_expects_that_nothing_is_lost() -> None:
    for path in SCENARIOS.glob("*.yaml"):
        expected = load_scenario(path.stem).expect.run
        assert {"bytes_lost", "bytes_corrupted"} <= expected.keys(), path.name


def test_every_scenario_bounds_what_it_shows() -> None:
    """That nothing was lost says nothing of how well it went."""
    for path in SCENARIOS.glob("*.yaml"):
        expected = load_scenario(path.stem).expect
        assert expected.flows or expected.faults or expected.operations, path.name
