"""The figures of this lab that no table shows: from the records of a student's run."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from testbed.studies.labs.evidence import Evidence

RUN = "slow"
PORTS = 16
"""Ports of the four hosts together."""

HOSTS_IN_RACK = 4


def link(drawn: Mapping[str, Any]) -> str:
    """The link that becomes slow."""
    rack = int(drawn["host"][1:]) // HOSTS_IN_RACK
    return f"{drawn['host']}--p{drawn['plane']}_t0_{rack}"


def ring_mib(lab: Evidence) -> float:
    """What a host sends in the all-reduce of the question, in MiB."""
    return 2 * half_mib(lab)


def half_mib(lab: Evidence) -> float:
    """What it sends in one of the two rounds."""
    return buffer_mib(lab) * (lab.drawn["ring"] - 1) / lab.drawn["ring"]


def buffer_mib(lab: Evidence) -> float:
    """The buffer."""
    return float(lab.drawn["buffer"])


def slowest_step(lab: Evidence) -> int:
    """The number of the longest step."""
    steps = _steps(lab).sort("length", descending=True)
    return int(steps["number"].to_list()[0])


def longest_over_usual(lab: Evidence) -> float:
    """How many times as long as step 1 the longest step is."""
    lengths = dict(_steps(lab).select("number", "length").iter_rows())
    return float(max(lengths.values()) / lengths[1])


def longest_s(lab: Evidence) -> float:
    """The length of the longest step, in seconds."""
    return float(max(_steps(lab)["length"].to_list()))


def time_lost_s(lab: Evidence) -> float:
    """By how much the longest step is longer than step 1, in seconds."""
    lengths = dict(_steps(lab).select("number", "length").iter_rows())
    return float(max(lengths.values()) - lengths[1])


def communication(lab: Evidence) -> float:
    """The share of step 1 that is not computing, in percent."""
    lengths = dict(_steps(lab).select("number", "length").iter_rows())
    compute = float(str(lab.drawn["compute"]).removesuffix(" s"))
    return float(100 * (1 - compute / lengths[1]))


def computing(lab: Evidence) -> float:
    """The rest."""
    return 100 - communication(lab)


def capacity_lost(lab: Evidence) -> float:
    """The share of all ports' capacity that the slow port no longer has, in percent."""
    return 100 * (1 - float(lab.drawn["factor"])) / PORTS


def capacity_of_host_lost(lab: Evidence) -> float:
    """The same of the one host's ports."""
    return capacity_lost(lab) * HOSTS_IN_RACK


def _steps(lab: Evidence) -> pl.DataFrame:
    """The finished steps: from the first host's start to the last one's end."""
    rows = lab.frame(RUN, "operations")
    steps = rows.group_by("number").agg(
        pl.col("start_t").min(), pl.col("t").max(), pl.col("host").len().alias("ended")
    )
    steps = steps.filter(pl.col("ended") == rows["hosts"].to_list()[0])
    return steps.with_columns(length=pl.col("t") - pl.col("start_t")).sort("number")
