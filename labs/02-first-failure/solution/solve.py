"""A solution of this lab: the answers from the run's files, as a student would find them."""

import json
from pathlib import Path
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the run."""
    return {"detection": "1.1 RTT", "exposure": "1.1 RTT", "stall": "1.5 RTT", "deficit": "0.1 RTT"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    run = work / "results/failure/latest"
    (fault,) = json.loads((run / "summary.json").read_text(encoding="utf-8"))["faults"]
    plane = fault["target"][1]
    events = pl.read_parquet(run / "ev_events.parquet").filter(pl.col("reason") == "substitute")
    losses = pl.read_parquet(run / "losses.parquet")
    arrivals = pl.read_parquet(run / "arrivals.parquet").filter(pl.col("bytes") > 0).sort("t")
    return {
        "substitute": f"p{plane}/t1_{events['ev'][0] >> 19 & 0x1FF}",
        "awaited": f"{_longest_wait(arrivals, fault['effective_s'])} PSN",
        "before-it-died": losses.filter(pl.col("sent_t") < fault["effective_s"])["seq"].to_list()[
            -1
        ],
        "why-longer": "b",
        "explain": _text(fault),
    }


def _longest_wait(arrivals: pl.DataFrame, since: float) -> int:
    """The PSN that is missing while the in-order delivered point stands still for longest."""
    arrived: set[int] = set()
    awaited, moved, longest = 0, 0.0, (0.0, 0)
    for t, seq in arrivals.select("t", "seq").iter_rows():
        arrived.add(seq)
        if seq != awaited:
            continue
        if t > since:
            longest = max(longest, (t - max(moved, since), awaited))
        while awaited in arrived:
            awaited += 1
        moved = t
    return longest[1]


def _text(fault: dict[str, Any]) -> str:
    return (
        "My prediction of the stall was farthest off. The detection took "
        f"{fault['detection_rtt']:.2f} RTT, the stall {fault['stall_rtt']:.2f} RTT, and the "
        f"deficit was only {fault['deficit_rtt']:.3f} RTT. I assumed that the transfer stops "
        "while the receiver waits, but only one of twelve paths was dead. The other paths went "
        "on delivering, and the receiver placed their packets in memory at once. The sender "
        "noticed the loss after one round trip, because later packets should have been "
        "acknowledged by then. It sent the missing packets again on other paths, which took "
        "another half round trip."
    )
