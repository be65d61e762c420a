"""Mean backlogs from samples that are taken only while something waits."""

import polars as pl
import pytest

from testbed.results.analysis.link_metrics import mean_backlogs
from testbed.results.records import QUEUES


def test_a_sample_holds_until_the_next_of_its_direction() -> None:
    """100 bytes for a second, 300 for half of one, then nothing; the other waits to the end."""
    samples = [(1.0, "a>b", 100), (2.0, "a>b", 300), (2.5, "a>b", 0), (3.0, "b>a", 40)]
    rows = [(-0.5, "a>b", 900), *samples, (4.5, "a>b", 700)]
    frame = pl.DataFrame(
        [(t, way, backlog, 0, 0, 0) for t, way, backlog in sorted(rows)],
        schema=QUEUES.frame_schema(),
        orient="row",
    )
    means = mean_backlogs(frame, 4.0)
    assert means["a>b"] == pytest.approx((100 * 1.0 + 300 * 0.5) / 4)
    assert means["b>a"] == pytest.approx(40 * 1.0 / 4)


def test_nothing_that_waited_has_no_mean() -> None:
    """As in a run without the link model."""
    assert not mean_backlogs(pl.DataFrame(schema=QUEUES.frame_schema()), 4.0)
