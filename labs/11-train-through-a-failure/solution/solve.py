"""A solution of this lab: the answers from the run's tables, as a student would find them."""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the run."""
    return {"slowest": "2 RTT"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    run = work / "results/job/latest"
    rows = pl.read_parquet(run / "operations.parquet")
    spans = {}
    for (number,), step in rows.group_by("number"):
        if step.height == 8:
            spans[number] = min(step["start_t"].to_list()), max(step["t"].to_list())
    lengths = {number: end - start for number, (start, end) in spans.items()}
    slowest = max(lengths, key=lengths.__getitem__)
    start, end = spans[slowest]
    sent = pl.read_parquet(run / "losses.parquet")["sent_t"].to_list()
    rtt = json.loads((run / "run.json").read_text(encoding="utf-8"))["base_rtt_ns"] / 1e9
    longer = (lengths[slowest] - median(lengths.values())) / rtt
    text = " ".join(
        (work / "answers.yaml").read_text(encoding="utf-8").replace("\n# ", " ").split()
    )
    parameters = int(re.search(r"A model has (\d+) parameters", text)[1])
    dead, timer = re.search(
        r"stays dead for (\d+) s\. The timer .* first expires ([\d.]+) s", text
    ).groups()
    wait = tried = float(timer)
    while tried < float(dead):
        wait *= 2
        tried += wait
    return {
        "gradients": f"{parameters * 4 * 2 * 7 / 8 / 1e6:.4f} MB",
        "which-step": slowest,
        "lost": sum(start <= at <= end for at in sent),
        "once": "b",
        "timer": f"{tried:.2f} s",
        "weights": "c",
        "explain": (
            f"Over MRC the longest step was longer by {longer:.2f} base RTTs, which is a fraction "
            "of a second here and microseconds at full speed. One step paid it: all hosts waited "
            "for the packets that were on the dead link until their senders noticed and sent them "
            "again over other paths. The steps after it took as long as ever, while the link was "
            f"still dead. With one path and a timer that doubles, the ring waits {tried:.2f} s, "
            "longer than the link was dead, because nobody tells the timer that it is back."
        ),
    }
