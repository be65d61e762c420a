"""The figures of this lab that no table shows: from the records of a student's run."""

import polars as pl

from testbed.studies.labs.evidence import Evidence

RUN = "failure"


def dead_path(lab: Evidence) -> str:
    """The path that the sender left."""
    return _path_of_event(lab, active=False)


def substitute(lab: Evidence) -> str:
    """The path that took its place."""
    return _path_of_event(lab, active=True)


def last_before(lab: Evidence) -> int:
    """The PSN of the last packet that was sent before the link died and was lost."""
    data = lab.data(RUN)
    died = data.seconds(data.faults[0].effective_ns)
    lost = lab.frame(RUN, "losses").filter((pl.col("sent_t") < died) & ~pl.col("spurious"))
    return int(lost["seq"].max())


def awaited(lab: Evidence) -> int:
    """The PSN for which the receiver waited during the stall: the first that was lost."""
    return int(lab.frame(RUN, "losses").filter(~pl.col("spurious"))["seq"].min())


def _path_of_event(lab: Evidence, *, active: bool) -> str:
    """The path of the first EV that entered or left the active set after the link died."""
    data = lab.data(RUN)
    died = data.seconds(data.faults[0].effective_ns)
    events = lab.frame(RUN, "ev_events").filter(
        (pl.col("t") > died) & (pl.col("active") == active) & (pl.col("t") < died + 2)
    )
    row = events.sort("t").row(0, named=True)
    return data.path_of(data.run.flows[0], row["ev"]).name
