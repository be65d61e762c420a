"""A solution of this lab: controller.py beside it, and the answers from the runs' tables."""

import json
import re
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
    text = " ".join(
        (work / "answers.yaml").read_text(encoding="utf-8").replace("\n# ", " ").split()
    )
    target, plane = re.search(r"on their way to (h\d) in plane (\d)", text).groups()  # type: ignore[union-attr] # the question has this form
    port = pl.col("direction").str.contains(f"^p{plane}_t0_.>{target}$")
    trimmed = links.filter(port)["trimmed"].to_list()[-1]
    asked = r"the slowest message of (h\d) take, in base RTTs, of those that began after ([\d.]+) s"
    who, after = re.search(asked, text).groups()  # type: ignore[union-attr]
    summary = json.loads((work / "results/nscc/latest/summary.json").read_text(encoding="utf-8"))
    (flow,) = [flow["flow"] for flow in summary["flows"] if flow["src"] == who]
    slowest = _tail(work / "results/nscc/latest", float(after), flow)
    return {
        "tail-nscc": f"{slowest:.3f} RTT",
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


def _tail(run: Path, after: float = 1.0, flow: int | None = None) -> float:
    messages = pl.read_parquet(run / "completions.parquet").filter(pl.col("start_t") > after)
    if flow is not None:
        messages = messages.filter(pl.col("flow") == flow)
    times = (messages["t"] - messages["start_t"]).to_list()
    base_s = json.loads((run / "summary.json").read_text(encoding="utf-8"))["base_rtt_us"] / 1e6
    return float(max(times)) / base_s
