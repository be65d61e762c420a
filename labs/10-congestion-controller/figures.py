"""The figures of this lab that no metric gives: from the records of a student's runs."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from testbed.labs.evidence import Evidence

SETTLED_S = 1.0
"""Messages that began before are left out: the first windows all arrive at the same time."""


def tail(lab: Evidence) -> float:
    """The 99th percentile of the time of a message in the run incast, in base RTTs."""
    return _tail(lab, "incast")


def tail_of_nscc(lab: Evidence) -> float:
    """The same in the run nscc."""
    return _tail(lab, "nscc")


def tail_of_dcqcn(lab: Evidence) -> float:
    """The same in the run dcqcn."""
    return _tail(lab, "dcqcn")


def trimmed(lab: Evidence) -> int:
    """How many packets were trimmed in the run incast."""
    ends = lab.frame("incast", "links").group_by("direction", maintain_order=True).last()
    return int(ends["trimmed"].sum())


def median_of_nscc(lab: Evidence) -> float:
    """The median of the time of a message in the run nscc: predicted, and a common mistake."""
    return _quantile(lab, "nscc", 0.5)


def _tail(lab: Evidence, run: str) -> float:
    return _quantile(lab, run, 0.99)


def _quantile(lab: Evidence, run: str, share: float) -> float:
    messages = lab.frame(run, "completions").filter(
        pl.col("start_t") > SETTLED_S * lab.stretch(run)
    )
    times = messages.select((pl.col("t") - pl.col("start_t")).quantile(share, "nearest"))
    return float(times.item()) * 1e6 / lab.summary(run).base_rtt_us


def target(drawn: Mapping[str, Any]) -> str:
    """The receiving host."""
    return str(drawn["roles"]["target"])


def senders(drawn: Mapping[str, Any]) -> list[str]:
    """The hosts that write to it."""
    return list(drawn["roles"]["senders"])
