"""The figures of this lab that no metric gives: from the records of a student's runs."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from testbed.studies.labs.evidence import Evidence

SETTLED_S = 1.0
"""Messages that began before are left out: the first windows all arrive at the same time."""


def tail(lab: Evidence) -> float:
    """The time of the slowest message in the run incast, in base RTTs."""
    return _tail(lab, "incast")


def tail_of_nscc(lab: Evidence) -> float:
    """The same in the run nscc."""
    return _tail(lab, "nscc")


def tail_of_dcqcn(lab: Evidence) -> float:
    """The same in the run dcqcn."""
    return _tail(lab, "dcqcn")


def trimmed(lab: Evidence) -> int:
    """How many packets were trimmed in the run incast, on the drawn plane's last hop."""
    plane, target = lab.drawn["plane"], lab.drawn["target"]
    port = pl.col("direction").str.contains(f"^p{plane}_t0_[0-9]+>{target}$")
    return int(_trims(lab).filter(port)["trimmed"].sum())


def trimmed_in_all(lab: Evidence) -> int:
    """How many at all ports."""
    return int(_trims(lab)["trimmed"].sum())


def _trims(lab: Evidence) -> pl.DataFrame:
    return lab.frame("incast", "links").group_by("direction", maintain_order=True).last()


def slowest_of_who(lab: Evidence) -> float:
    """The time of the drawn sender's slowest message after the drawn time with NSCC, in RTT."""
    flow = next(flow.flow for flow in lab.data("nscc").run.flows if flow.src == lab.drawn["who"])
    after = float(str(lab.drawn["after"]).removesuffix(" s"))
    return _quantile(lab, "nscc", 1.0, (pl.col("start_t") > after) & (pl.col("flow") == flow))


def median_of_nscc(lab: Evidence) -> float:
    """The median of the time of a message in the run nscc: predicted, and a common mistake."""
    return _quantile(lab, "nscc", 0.5)


def _tail(lab: Evidence, run: str) -> float:
    return _quantile(lab, run, 1.0)


def _quantile(lab: Evidence, run: str, share: float, of: pl.Expr | None = None) -> float:
    chosen = pl.col("start_t") > SETTLED_S if of is None else of
    messages = lab.frame(run, "completions").filter(chosen)
    times = messages.select((pl.col("t") - pl.col("start_t")).quantile(share, "nearest"))
    return float(times.item()) * 1e6 / lab.summary(run).base_rtt_us


def target(drawn: Mapping[str, Any]) -> str:
    """The receiving host."""
    return str(drawn["roles"]["target"])


def who(drawn: Mapping[str, Any]) -> str:
    """One of them."""
    return senders(drawn)[drawn["which"]]


def senders(drawn: Mapping[str, Any]) -> list[str]:
    """The hosts that write to it."""
    return list(drawn["roles"]["senders"])
