"""The figures of this lab that no metric gives: from the records of a student's runs."""

import polars as pl

from testbed.studies.labs.evidence import Evidence

PRACTICE = "practice"
DEAD_S = 3.0
"""How long the link of the practice run is dead."""


def packets_lost(lab: Evidence) -> int:
    """How many packets were lost in the practice run."""
    return lab.frame(PRACTICE, "losses").filter(~pl.col("spurious")).height


def last_sent(lab: Evidence) -> int:
    """The PSN of the last packet over the dead link's path before it was healed."""
    return int(_over_path(lab).filter(pl.col("t") < _healed_s(lab))["seq"].to_list()[-1])


def first_back(lab: Evidence) -> int:
    """The PSN of the first packet over it behind that; -1 if there was none."""
    back = _over_path(lab).filter(pl.col("t") >= _healed_s(lab))["seq"].to_list()
    return int(back[0]) if back else -1


def _over_path(lab: Evidence) -> pl.DataFrame:
    path = f"p{lab.drawn['plane']}/t1_{lab.drawn['t1']}"
    return lab.frame(PRACTICE, "transmissions").filter(pl.col("path") == path)


def _healed_s(lab: Evidence) -> float:
    return float(str(lab.drawn["at"]).removesuffix(" s")) + DEAD_S


def packets_of_plane(lab: Evidence) -> int:
    """How many packets left through the plane of the dead link in the drawn time."""
    plane = int(str(lab.drawn["link"])[1])
    return _sent_while_dead(lab).filter(pl.col("plane") == plane).height


def packets_of_planes(lab: Evidence) -> int:
    """How many left in this time through all planes."""
    return _sent_while_dead(lab).height


def _sent_while_dead(lab: Evidence) -> pl.DataFrame:
    died = float(str(lab.drawn["at"]).removesuffix(" s"))
    sent = lab.frame(PRACTICE, "transmissions")
    return sent.filter(pl.col("t").is_between(died + 0.5, died + float(lab.drawn["until"])))
