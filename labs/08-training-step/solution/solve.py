"""A solution of this lab: the answers from the run's table, as a student would find them."""

import re
from pathlib import Path
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the run."""
    return {"longest-step": "2"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    rows = pl.read_parquet(work / "results/slow/latest/operations.parquet")
    lengths = {}
    for (number,), step in rows.group_by("number"):
        if step.height == 4:
            lengths[number] = max(step["t"].to_list()) - min(step["start_t"].to_list())
    slowest = max(lengths, key=lengths.__getitem__)
    times = lengths[slowest] / lengths[1]
    text = " ".join(
        (work / "answers.yaml").read_text(encoding="utf-8").replace("\n# ", " ").split()
    )
    asked = r"all-reduce of (\d+) MiB among (\d+) hosts"
    buffer, ring = map(int, re.search(asked, text).groups())  # type: ignore[union-attr] # the question has this form
    compute = float(re.search(r"the hosts compute for ([\d.]+) s", text)[1])  # type: ignore[index]
    left = re.search(r"One of them fell to the share ([\d.]+) of", text)
    missing = 100 * (1 - float(left[1])) / 16  # type: ignore[index] # the question has this form
    return {
        "ring-bytes": f"{2 * buffer * (ring - 1) / ring:.3f} MiB",
        "communication": f"{100 * (lengths[1] - compute) / lengths[1]:.2f}%",
        "slowest-step": slowest,
        "how-much-longer": f"{lengths[slowest] - lengths[1]:.3f} s",
        "capacity": f"{missing:.3f}%",
        "why": "b",
        "explain": (
            f"Only {missing:.2f}% of the capacity was missing, but a step took {times:.2f} "
            "times as long. All hosts have to wait until the sum of all gradients is complete. "
            "Packets are spread over all ports, so each message has some packets on the slow "
            "port, and it is complete only with the last of them. The next host in the ring "
            "cannot go on before. So the job runs at the speed of the slowest packet and not at "
            "the mean speed."
        ),
    }
