"""A solution of this lab: the answers from the runs' files, as a student would find them."""

import json
import re
from math import perm
from pathlib import Path
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the runs."""
    return {"slowest": "45%", "slowest-sprayed": "96%"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    sent = pl.read_parquet(work / "results/roce/latest/transmissions.parquet")
    first = sent.unique("flow", keep="first")
    by_switch = first["ev"].to_list()
    switches = [ev >> 19 & 0x1FF for ev in by_switch]
    sprayed = pl.read_parquet(work / "results/spray/latest/transmissions.parquet")
    text = " ".join(
        (work / "answers.yaml").read_text(encoding="utf-8").replace("\n# ", " ").split()
    )
    flows, uppers = map(
        int, re.search(r"Each of (\d+) flows is hashed to one of (\d+) ", text).groups()
    )  # type: ignore[union-attr] # the question has this form
    asked, by = re.search(r"the upper switch t1_(\d) by ([\d.]+) s", text).groups()  # type: ignore[union-attr]
    early = sprayed.filter((pl.col("flow") == 0) & (pl.col("t") <= float(by)))
    of_h0 = [ev >> 19 & 0x1FF for ev in early["ev"]]
    slow, fast = _slowest(work, "roce"), _slowest(work, "spray")
    return {
        "no-collision": f"{100 * perm(uppers, flows) / uppers**flows:.2f}%",
        "idle-switches": [f"t1_{switch}" for switch in range(4) if switch not in switches],
        "who-collides": sorted(
            f"h{flow}"
            for flow, switch in zip(first["flow"].to_list(), switches, strict=True)
            if switches.count(switch) > 1
        ),
        "evenness": of_h0.count(int(asked)),
        "why": "b",
        "explain": (
            f"With RoCE the slowest flow got {slow:.1f}% of its port: the hash sent several "
            "flows over the same upper switch while another upper switch was idle. Flows that "
            "share a link get equal parts of it. With spraying each packet takes another path, so "
            "all upper switches carry the same load and no flow meets a fuller link than the "
            f"others. There the slowest flow got {fast:.1f}% of its port."
        ),
    }


def _slowest(work: Path, run: str) -> float:
    """The slowest flow's share of its port, in percent."""
    summary = json.loads((work / f"results/{run}/latest/summary.json").read_text(encoding="utf-8"))
    return 100 * min(flow["ports_fraction"] for flow in summary["flows"])
