"""A solution of this lab: controller.py beside it, and the answers from the runs' tables."""

import json
from pathlib import Path
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the run."""
    return {"nscc-median": "2.5 RTT"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    tails = {run: _tail(work / "results" / run / "latest") for run in ("nscc", "dcqcn", "incast")}
    links = pl.read_parquet(work / "results/incast/latest/links.parquet")
    trimmed = int(links.group_by("direction", maintain_order=True).last()["trimmed"].sum())
    return {
        "tail-nscc": f"{tails['nscc']:.3f} RTT",
        "dcqcn-tail": f"{tails['dcqcn']:.3f} RTT",
        "trimmed": trimmed,
        "explain": (
            f"The tail of my run incast is {tails['incast']:.2f} RTT, that of NSCC "
            f"{tails['nscc']:.2f} RTT. The controller measures the round trip of each SACK against "
            "the base round trip. Below 1.5 it adds four packets in a round trip, above it "
            "multiplies the window, the more the longer the queue, at most once in a round trip. "
            "Bytes that were trimmed are given up at once. It begins with one and a half BDP, "
            "which the permutation needs, and which costs the incast its first round trips."
        ),
    }


def _tail(run: Path) -> float:
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    slower = manifest["scenario"]["topology"]["dilation"] / 10_000  # 1, unless asked for
    messages = pl.read_parquet(run / "completions.parquet").filter(pl.col("start_t") > slower)
    times = (messages["t"] - messages["start_t"]).sort()
    base_s = json.loads((run / "summary.json").read_text(encoding="utf-8"))["base_rtt_us"] / 1e6
    return float(times.quantile(0.99, "nearest") or 0.0) / base_s
