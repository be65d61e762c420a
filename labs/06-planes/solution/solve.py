"""A solution of this lab: arithmetic, and answers from the runs' files."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl


def predictions() -> dict[str, str]:
    """What is predicted before the runs."""
    return {"ports-left": "50%", "switch-left": "75%", "transceiver-left": "87%"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    text = " ".join(
        (work / "answers.yaml").read_text(encoding="utf-8").replace("\n# ", " ").split()
    )
    failed_ports = len(set(re.findall(r"h0--p\d_t0_0", text)))
    uplinks, failed_plane = re.search(  # type: ignore[union-attr] # the question has this form
        r"is left when (uplinks? [\w ]+) of p(\d)_t0_0", text
    ).groups()
    last, plane = int(uplinks[-1]), int(failed_plane)
    sent = pl.read_parquet(work / "results/transceiver/latest/transmissions.parquet")
    sent = sent.filter(pl.col("t").is_between(1.8, 2.2))
    share = sent.filter(pl.col("plane") == plane).height / sent.height
    return {
        "port-arithmetic": f"{100 * (4 - failed_ports) / 4:g}%",
        "uplink-arithmetic": f"{100 * (16 - last - 1) / 16:g}%",
        "in-damaged-plane": f"{100 * share:.2f}%",
        "who-suffers": "port",
        "explain": (
            f"The run with dead ports kept {_kept(work, 'ports'):.1f}% of its goodput, near the "
            "share of the ports that were left. The difference comes from packets that were under "
            "way when the ports went down and from data that waited in queues. The run with the "
            f"dead transceiver kept {_kept(work, 'transceiver'):.1f}%, a little less than the "
            "share of uplinks that were left: packets were lost at first and had to be sent "
            "again, and one plane is fuller than the others."
        ),
    }


def _kept(work: Path, run: str) -> float:
    """Goodput in force over goodput before, in percent."""
    summary = json.loads((work / f"results/{run}/latest/summary.json").read_text(encoding="utf-8"))
    before = sum(flow["goodput_before_bps"] for flow in summary["flows"])
    return 100 * sum(flow["goodput_bps"] for flow in summary["faults"][0]["flows"]) / before
