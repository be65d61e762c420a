"""A solution of this lab: the answers from the runs' files, as a student would find them."""

import json
from pathlib import Path
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the runs."""
    return {"loud-detection": "0 RTT", "grey-detection": "2 RTT", "roce-stall": "18 RTT"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    loud, silent, grey = (_events(work, run) for run in ("loud", "silent", "grey"))
    left = silent.filter(~pl.col("active"))["ev"].to_list()[0]
    of_left = silent.filter(pl.col("ev") == left)["new"].to_list()
    gone = grey.filter(~pl.col("active")).row(0, named=True)
    arrivals = pl.read_parquet(work / "results/grey/latest/arrivals.parquet")
    failed = 1.4  # s, as in the handout
    passed = arrivals.filter(
        (pl.col("ev") == gone["ev"]) & (pl.col("t") >= failed) & (pl.col("t") <= gone["t"])
    )
    flows = {*pl.read_parquet(work / "results/one-way/latest/losses.parquet")["flow"]}
    return {
        "out-at-once": [
            f"p{ev >> 16 & 7}/t1_{ev >> 19 & 0x1FF}"
            for ev in loud.filter(pl.col("reason") == "port down")["ev"]
        ],
        "states": ["GOOD", *of_left],
        "passed-grey": passed.height,
        "who-lost": "c" if len(flows) > 1 else "ab"[flows.pop()],
        "explain": (
            "The loud failure was noticed at once, because the host itself sees that its port has "
            f"no carrier. The silent one took {_fault(work, 'silent', 'detection_rtt'):.2f} RTT: "
            "the sender has to wait until acknowledgements of later packets come back and that of "
            "the lost packet does not. The grey one took "
            f"{_fault(work, 'grey', 'detection_rtt'):.2f} RTT, because first a packet has to be "
            "lost, and that is chance; then another round trip passes. RoCE stood still for "
            f"{_fault(work, 'roce', 'stall_rtt'):.2f} RTT. It has only one path, so nothing "
            "arrives until the link is healed and a timeout lets it send again."
        ),
    }


def _events(work: Path, run: str) -> pl.DataFrame:
    """The changes of EVs after the failure."""
    events = pl.read_parquet(work / f"results/{run}/latest/ev_events.parquet")
    return events.filter(pl.col("t") > 1)


def _fault(work: Path, run: str, figure: str) -> float:
    summary = json.loads((work / f"results/{run}/latest/summary.json").read_text(encoding="utf-8"))
    return float(summary["faults"][0][figure])
