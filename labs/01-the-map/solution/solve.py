"""A solution of this lab: the answers by hand, from the questions and the run's records."""

import re
from pathlib import Path
from typing import Any

import polars as pl

_FABRICS = {
    "clos-tiny": (2, 2),
    "clos-4plane": (4, 4),
    "clos-8plane": (8, 4),
    "clos-16host": (1, 4),
}
"""Planes and upper switches of each, as `testbed topo` draws them."""


def predictions() -> dict[str, str]:
    """What is predicted before the run."""
    return {"paths-used": "16"}


def answers(work: Path) -> dict[str, Any]:
    """The answers to all questions.

    Args:
        work: the directory of the lab, with its runs.
    """
    text = " ".join(
        (work / "answers.yaml").read_text(encoding="utf-8").replace("\n# ", " ").split()
    )
    src, dst, plane, t1 = map(
        int,
        re.search(  # type: ignore[union-attr] # the question has this form
            r"leave h(\d), to go to h(\d) by the path p(\d)/t1_(\d)", text
        ).groups(),
    )
    asked = text.partition("another rack in the fabric ")[2].partition("?")[0]
    planes, uppers = _FABRICS[asked]
    seen = re.search(r"destination 5f00:0:(\w{4}):(\w{4}):(\w{4})::", text)
    psn = int(text.partition("with the PSN ")[2].split()[0])
    upper, lower, nic = (int(usid, 16) for usid in seen.groups())  # type: ignore[union-attr]
    sent = pl.read_parquet(work / "results/walk/latest/transmissions.parquet")
    ev = sent.filter(pl.col("seq") == psn)["ev"].to_list()[0]
    usids = [
        _usid(1, plane, src // 4),
        _usid(2, plane, t1),
        _usid(1, plane, dst // 4),
        _usid(3, plane, dst % 4),
    ]
    return {
        "paths-across": planes * uppers,
        "paths-within": planes,
        "usid": f"{_usid(2, plane, t1):x}",
        "carrier": "5f00:0:" + ":".join(f"{usid:x}" for usid in usids) + "::",
        "next-switch": f"p{upper >> 9 & 7}_t1_{upper & 0x1FF}",
        "receiver": f"h{(lower & 0x1FF) * 4 + (nic & 0x1FF)}",
        "psn-path": f"p{ev >> 16 & 7}/t1_{ev >> 19 & 0x1FF}",
        "explain": (
            "Here the sender decides on the path of every single packet, so my flow could use all "
            "16 paths at the same time. If switches found the way by themselves, a flow would get "
            "one path by a hash. And after a failure everybody would wait until routing has "
            "noticed it, while here the sender just leaves the path."
        ),
    }


def _usid(role: int, plane: int, number: int) -> int:
    return role << 12 | plane << 9 | number
