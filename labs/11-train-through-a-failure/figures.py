"""The figures of this lab that no table shows: from the records of a student's run."""

from typing import Any

import polars as pl

from testbed.studies.labs.evidence import Evidence

RUN = "job"
HOSTS = 8
GRADIENT_BYTES = 4


def gradients_mb(lab: Evidence) -> float:
    """The gradients of the question, in MB."""
    return float(lab.drawn["parameters"] * GRADIENT_BYTES / 1e6)


def half_mb(lab: Evidence) -> float:
    """What a host sends of them in one of the two rounds."""
    return gradients_mb(lab) * (HOSTS - 1) / HOSTS


def ring_mb(lab: Evidence) -> float:
    """What it sends in both."""
    return 2 * half_mb(lab)


def slowest_step(lab: Evidence) -> int:
    """The number of the longest step."""
    return int(_slowest(lab)["number"])


def longer_rtt(lab: Evidence) -> float:
    """By how much it is longer than the median step, in base RTTs."""
    longer = _slowest(lab)["length"] - _steps(lab)["length"].median()
    return float(longer / lab.data(RUN).base_rtt_s)


def lost_in_step(lab: Evidence) -> int:
    """The packets sent in the longest step that were declared lost."""
    step = _slowest(lab)
    sent = lab.frame(RUN, "losses")["sent_t"]
    return int(((sent >= step["start_t"]) & (sent <= step["t"])).sum())


def lost_in_all(lab: Evidence) -> int:
    """Those of the whole run."""
    return int(lab.frame(RUN, "losses").height)


def dead_s(lab: Evidence) -> float:
    """How long the link of the question is dead."""
    return float(lab.drawn["dead"])


def timer_wait_s(lab: Evidence) -> float:
    """After how long a timer that doubles first meets the link alive."""
    first = timer = float(lab.drawn["timer"])
    tried = first
    while tried < dead_s(lab):
        timer *= 2
        tried += timer
    return tried


def _slowest(lab: Evidence) -> dict[str, Any]:
    return _steps(lab).sort("length", descending=True).row(0, named=True)


def _steps(lab: Evidence) -> pl.DataFrame:
    """The finished steps: from the first host's start to the last one's end."""
    rows = lab.frame(RUN, "operations")
    steps = rows.group_by("number").agg(
        pl.col("start_t").min(), pl.col("t").max(), pl.col("host").len().alias("ended")
    )
    steps = steps.filter(pl.col("ended") == HOSTS)
    return steps.with_columns(length=pl.col("t") - pl.col("start_t")).sort("number")
