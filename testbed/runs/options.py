"""Options of `testbed run` and `testbed simulate` that campaigns give to their runs."""

STOP_IF_LATE = "--stop-if-late"
"""End the run once the machine was so late that it cannot be trusted."""

REQUIRE_TRUSTED = "--require-trusted"
"""Treat a degraded run as an error, too."""

NO_FIGURES = "--no-figures"
"""Make no drawings and no report of the run: they take as long as the rest of its analysis."""

RECORDED = "--recorded"
"""The scenario's file is one that a campaign wrote, as a run's record has it (`load_recorded`)."""
