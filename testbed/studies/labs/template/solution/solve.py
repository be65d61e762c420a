"""A solution: predictions, and answers from the files of the run."""

from pathlib import Path
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the runs."""
    return {"stall": "1.3 RTT"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    losses = pl.read_parquet(work / "results/failure/latest/losses.parquet")
    return {"lost": losses.height}
