"""The figures of this lab that no table shows: from the records of a student's run."""

from collections import Counter

import polars as pl

from testbed.studies.labs.evidence import Evidence

RUN = "hidden"


def lossy_path(lab: Evidence) -> str:
    """The path on which the flows lost most packets."""
    return _losses_by_path(lab).most_common(1)[0][0]


def packets_lost(lab: Evidence) -> int:
    """How many packets the flows lost on it."""
    return _losses_by_path(lab).most_common(1)[0][1]


def suspects(lab: Evidence) -> tuple[str, ...]:
    """The links between switches on it."""
    plane, _, upper = lossy_path(lab).partition("/")
    return tuple(f"{plane}_t0_{rack}--{plane}_{upper}" for rack in (0, 1))


def culprit(lab: Evidence) -> str:
    """The link that lost packets."""
    return str(lab.data(RUN).faults[0].target)


def other_suspect(lab: Evidence) -> str:
    """The other link of the path."""
    return next(link for link in suspects(lab) if link != culprit(lab))


def lost_out_and_back(lab: Evidence) -> int:
    """Lost probes to the path's upper switch and straight back, of the rack that lost some."""
    return max(_lost_out_and_back(lab, rack) for rack in (0, 1))


def began_s(lab: Evidence) -> float:
    """When the fault began, in seconds of the run."""
    data = lab.data(RUN)
    return data.seconds(data.faults[0].effective_ns) or 0.0


def _losses_by_path(lab: Evidence) -> Counter[str]:
    return Counter(lab.frame(RUN, "losses").filter(~pl.col("spurious"))["path"])


def _lost_out_and_back(lab: Evidence, rack: int) -> int:
    plane, _, upper = lossy_path(lab).partition("/")
    lower = f"{plane}_t0_{rack}"
    loop = f">{lower}>{plane}_{upper}>{lower}>"
    probes = lab.frame(RUN, "probes").filter(pl.col("lost"))
    return probes.filter(pl.col("path").str.contains(loop, literal=True)).height
