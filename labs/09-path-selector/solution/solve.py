"""A solution of this lab: selector.py beside it, and the answers from the run's tables."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl

from testbed.model.units import NS_PER_S, parse_duration


def predictions() -> dict[str, str]:
    """What is predicted before the run."""
    return {"starter-deficit": "1.25 RTT"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    run = work / "results/practice/latest"
    losses = pl.read_parquet(run / "losses.parquet").filter(~pl.col("spurious")).height
    scenario = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["scenario"]
    (fault,) = scenario["timeline"]
    (target,) = [fault["target"]] if isinstance(fault["target"], str) else fault["target"]
    start, plane = parse_duration(fault["at"]) / NS_PER_S, int(target[1])
    sent = pl.read_parquet(run / "transmissions.parquet")
    upper = int(target[-1])
    over = sent.filter((pl.col("ev") // (1 << 16) == plane + 8 * upper) & (pl.col("flow") == 0))
    last = over.filter(pl.col("t") < start + 3.0)["seq"].to_list()[-1]
    text = " ".join(
        (work / "answers.yaml").read_text(encoding="utf-8").replace("\n# ", " ").split()
    )
    until = float(re.search(r"from 0.5 s to ([\d.]+) s after it died", text)[1])  # type: ignore[index] # the question has this form
    sent = sent.filter(pl.col("t").is_between(start + 0.5, start + until))
    of_plane = sent.filter(pl.col("plane") == plane).height
    return {
        "last-sent": last,
        "balance": of_plane,
        "explain": (
            f"My run lost {losses} packets, and {of_plane} of {sent.height} left through the plane "
            "of the dead link. The class keeps the active EVs of each plane in a list, and "
            "on_state adds and removes them. It takes the planes in turn, and within a plane its "
            "EVs in turn. Skipping a bad EV and taking the next one is not enough, since that "
            "one may be of another plane, whose port then gets more than its quarter of the "
            "packets, while the port of the plane with the dead link has room that nobody uses."
        ),
    }
