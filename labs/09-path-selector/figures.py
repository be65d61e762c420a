"""The figures of this lab that no metric gives: from the records of a student's runs."""

import polars as pl

from testbed.labs.evidence import Evidence

PRACTICE = "practice"
DEAD_S = 3.0
"""How long the link of the practice run is dead."""


def packets_lost(lab: Evidence) -> int:
    """How many packets were lost in the practice run."""
    return lab.frame(PRACTICE, "losses").filter(~pl.col("spurious")).height


def share_of_plane(lab: Evidence) -> float:
    """Percent of the packets that left through the plane of the dead link while it was dead."""
    begin, stretch = float(str(lab.drawn["at"]).removesuffix(" s")), lab.stretch(PRACTICE)
    plane = int(str(lab.drawn["link"])[1])
    sent = lab.frame(PRACTICE, "transmissions").filter(
        pl.col("t").is_between((begin + 0.5) * stretch, (begin + DEAD_S) * stretch)
    )
    return 100 * sent.filter(pl.col("plane") == plane).height / sent.height
