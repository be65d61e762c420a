"""A solution of this lab: the answers from the tables that hosts can see."""

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the run."""
    return {"how-far": "path"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    run = work / "results/hidden/latest"
    losses = pl.read_parquet(run / "losses.parquet")
    (label, lost), *_ = Counter(value >> 16 for value in losses["ev"]).most_common()
    plane, upper = f"p{label & 7}", f"p{label & 7}_t1_{label >> 3 & 0x1FF}"
    links = [f"{plane}_t0_{rack}--{upper}" for rack in (0, 1)]
    probes = pl.read_parquet(run / "probes.parquet").filter(pl.col("lost"))
    loops = [
        sum(f">{plane}_t0_{rack}>{upper}>{plane}_t0_{rack}>" in path for path in probes["path"])
        for rack in (0, 1)
    ]
    culprit, other = links if loops[0] else links[::-1]
    on_path = losses.filter(pl.col("ev") // (1 << 16) == label)
    return {
        "path": f"{plane}/t1_{label >> 3 & 0x1FF}",
        "suspects": links,
        "lost-probes": max(loops),
        "culprit": culprit,
        "began": f"{min([*on_path['sent_t'], *probes['t']]):.3f} s",
        "report": (
            f"Please look at the link {culprit}. The flows lost {lost} packets on the path over "
            f"{upper}, which crosses this link and {other}. Probes that went out and back over "
            f"{culprit} were lost {sum(loops)} times, while every probe that went out and back "
            f"over {other} returned. So the fault is on the first link, not on the second, and "
            "neither in the hosts nor in their ports."
        ),
    }
