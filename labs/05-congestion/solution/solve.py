"""A solution of this lab: the answers from the runs' tables, as a student would find them."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the runs."""
    return {"lost": "0", "alarms": "40"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    trim = pl.read_parquet(work / "results/trim/latest/links.parquet").sort("t")
    drop = pl.read_parquet(work / "results/drop/latest/links.parquet")
    events = pl.read_parquet(work / "results/drop/latest/ev_events.parquet")
    most = {
        direction: rows["trimmed"].to_list()[-1]
        for (direction,), rows in trim.group_by("direction")
        if rows["trimmed"].to_list()[-1]
    }
    trimmed = sum(most.values())
    alarms = events.filter((pl.col("t") > 0) & (pl.col("new") == "ASSUMED_BAD")).height
    windows = pl.read_parquet(work / "results/trim/latest/qp.parquet").sort("t")
    text = " ".join(
        (work / "answers.yaml").read_text(encoding="utf-8").replace("\n# ", " ").split()
    )
    asked = (
        r"the window \(cwnd_bytes\) of (h\d) at its first row as at its last row before ([\d.]+) s"
    )
    who, by = re.search(asked, text).groups()  # type: ignore[union-attr] # the question has this form
    summary = json.loads((work / "results/trim/latest/summary.json").read_text(encoding="utf-8"))
    (flow,) = [flow["flow"] for flow in summary["flows"] if flow["src"] == who]
    windows = windows.filter((pl.col("t") < float(by)) & (pl.col("flow") == flow))
    cwnd = windows["cwnd_bytes"].to_list()
    of_one = events.filter(
        (pl.col("t") > 0) & (pl.col("new") == "ASSUMED_BAD") & (pl.col("flow") == flow)
    )
    longest = [max(frame["backlog_bytes"].to_list()) for frame in (trim, drop)]
    return {
        "where": sorted(most),
        "trimmed": trimmed,
        "marks": "b",
        "shrunk": f"{cwnd[0] / cwnd[-1]:.2f}",
        "false-alarms": of_one.height,
        "queue": f"{longest[1] / longest[0]:.2f}",
        "explain": (
            f"With trimming the switch tells: {trimmed} packets were trimmed in my run, each "
            "header reached the receiver, and a NACK told the sender to send this packet again "
            "and to slow down. So silence is left for broken paths. Without trimming a full queue "
            f"is silent, too. The senders took paths for broken {alarms} times although nothing "
            "had failed. They left good paths, had fewer paths to use, and probed them before "
            "they came back."
        ),
    }
