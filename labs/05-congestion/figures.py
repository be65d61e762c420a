"""The figures of this lab that no table shows: from the records of a student's runs."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from testbed.studies.labs.evidence import Evidence

TRIM, DROP = "trim", "drop"


def trimming_ports(lab: Evidence) -> tuple[str, ...]:
    """The directions of links whose queues trimmed packets."""
    ends = _ends(lab, TRIM).filter(pl.col("trimmed") > 0)
    return tuple(sorted(ends["direction"].to_list()))


def trimmed(lab: Evidence) -> int:
    """How many packets were trimmed in all."""
    return int(_ends(lab, TRIM)["trimmed"].sum())


def marked_at_target(lab: Evidence) -> int:
    """How many packets were marked on the last hop."""
    ends = _ends(lab, TRIM).filter(pl.col("direction").str.ends_with(f">{lab.drawn['target']}"))
    return int(ends["marked"].sum())


def lost_with_trimming(lab: Evidence) -> int:
    """How many packets were lost where switches trim."""
    return lab.frame(TRIM, "losses").filter(~pl.col("spurious")).height


def false_alarms(lab: Evidence) -> int:
    """How often an EV left the rotation where switches drop, though no path was broken."""
    events = lab.frame(DROP, "ev_events").filter(pl.col("t") > 0)
    return events.filter(pl.col("new") == "ASSUMED_BAD").height


def false_alarms_of_one(lab: Evidence) -> int:
    """How many of them the drawn sender had."""
    flow = _flow_of_who(lab, DROP)
    events = lab.frame(DROP, "ev_events").filter((pl.col("t") > 0) & (pl.col("flow") == flow))
    return events.filter(pl.col("new") == "ASSUMED_BAD").height


def shrunk(lab: Evidence) -> float:
    """How many times as large the drawn sender's window was at first as by the drawn time."""
    flow = _flow_of_who(lab, TRIM)
    by = float(str(lab.drawn["by"]).removesuffix(" s"))
    rows = lab.frame(TRIM, "qp").filter((pl.col("flow") == flow) & (pl.col("t") < by)).sort("t")
    windows = rows["cwnd_bytes"].to_list()
    return float(windows[0] / windows[-1])


def left(lab: Evidence) -> float:
    """The inverse."""
    return 1 / shrunk(lab)


def longer_queue(lab: Evidence) -> float:
    """How many times as long the longest queue is without trimming."""
    return _longest(lab, DROP) / _longest(lab, TRIM)


def shorter_queue(lab: Evidence) -> float:
    """The inverse."""
    return 1 / longer_queue(lab)


def _flow_of_who(lab: Evidence, run: str) -> int:
    """The number of the drawn sender's flow."""
    return next(flow.flow for flow in lab.data(run).run.flows if flow.src == lab.drawn["who"])


def _longest(lab: Evidence, run: str) -> float:
    return float(lab.frame(run, "links")["backlog_bytes"].to_numpy().max())


def _ends(lab: Evidence, run: str) -> pl.DataFrame:
    """The counters of each direction at the end of the run."""
    return lab.frame(run, "links").group_by("direction", maintain_order=True).last()


def target(drawn: Mapping[str, Any]) -> str:
    """The receiving host."""
    return str(drawn["roles"]["target"])


def who(drawn: Mapping[str, Any]) -> str:
    """One of them."""
    return senders(drawn)[drawn["which"]]


def senders(drawn: Mapping[str, Any]) -> list[str]:
    """The hosts that write to it."""
    return list(drawn["roles"]["senders"])
