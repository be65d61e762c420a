"""Lab 10 cannot be passed without a controller; `thresholds.py` shows it for more students."""

import pytest

from tests.labs.thresholds import SOLVED, STARTER, WINDOWS, findings

pytestmark = [pytest.mark.long, pytest.mark.simulated]


def test_no_fixed_window_passes_lab_10() -> None:
    found, wrong = findings(1)
    assert wrong == []
    assert len(found) == len({STARTER, SOLVED}) + len(WINDOWS)
