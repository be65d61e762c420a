"""`testbed figures`: with how many seeds it makes runs in each form."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from testbed.campaign.job import FORMS, Form
from testbed.cli.figures import seed_counts
from testbed.paper.planning import plan, select_figures


@pytest.mark.parametrize(
    ("requested", "full", "expected"),
    [
        (None, False, {"emulated": 1, "simulated": 1}),
        (None, True, {"emulated": 3, "simulated": 5}),
        (2, True, {"emulated": 2, "simulated": 2}),
        (4, False, {"emulated": 4, "simulated": 4}),
    ],
)
def test_the_full_set_has_three_emulated_and_five_simulated_seeds(
    requested: int | None, full: bool, expected: Mapping[Form, int], tmp_path: Path
) -> None:
    counts = seed_counts(requested, full=full)
    planned = plan(select_figures(["9a"]), tmp_path, FORMS, seeds=counts)
    assert {form: len(runs) for (_, form), runs in planned.runs.items()} == expected
