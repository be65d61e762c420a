"""Thousands of damaged packets and random faults: longer forms of the tests.

Each run draws other values. `TESTBED_SOAK=1 pytest tests/sim/test_stateful.py` goes on for
longer: 3,000 schedules.
"""

from collections.abc import Mapping

from testbed.limits import simulations_at_once
from testbed.studies.bench.claims import Claim, figures
from testbed.studies.bench.measure import Measurement, Setting


def _drawn(schedules: int) -> Mapping[str, str]:
    return {"TESTBED_SOAK": "1", "TESTBED_SCHEDULES": str(schedules)}


CLAIMS = (
    Claim(
        "schedules of faults over a simulated fabric",
        "schedules",
        200,
        "tests/sim/test_stateful.py",
        _drawn(200),
    ),
    Claim(
        "mutated packets, decoded and taken in",
        "packets",
        1_000_000,
        "tests/mrc/test_fuzz.py::test_a_million_mutated_packets",
        {"TESTBED_SOAK": "1"},
    ),
    Claim(
        "workloads over a bad network and failing ports",
        "schedules",
        1_500,
        "tests/mrc/test_schedules.py",
        _drawn(1_500),
    ),
    Claim(
        "faults on all paths but one of a simulated fabric",
        "schedules",
        300,
        "tests/sim/test_schedules.py",
        _drawn(300),
    ),
    Claim(
        "rules taken out of the code, which their tests notice",
        "mutations",
        10,
        "tests/conformance/test_conformance.py",
        {"TESTBED_SOAK": "1"},
    ),
    Claim(
        "packets damaged while every link corrupts 1%",
        "damaged",
        200,
        "tests/sim/test_run.py::test_corruption_on_every_link_lets_nothing_wrong_into_memory",
    ),
)
"""The longest first: as many run at once as there are CPUs."""


def robustness(setting: Setting) -> list[Measurement]:
    """Give a queue pair mutated packets, and networks random faults; takes some minutes."""
    return figures(CLAIMS, setting, at_once=simulations_at_once())
