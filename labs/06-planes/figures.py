"""The figures of this lab that no table shows: from the records of a student's runs."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from testbed.studies.labs.evidence import Evidence

PLANES, UPLINKS = 4, 4


def ports(drawn: Mapping[str, Any]) -> list[str]:
    """The links that fail in the run ports."""
    return [f"h0--p{plane}_t0_0" for plane in drawn["planes"]]


def uplinks(drawn: Mapping[str, Any]) -> str:
    """The uplinks that the transceiver takes with it, in words."""
    return ("uplink 0", "uplinks 0 and 1", "uplinks 0 to 2")[drawn["last"]]


def left_of_ports(lab: Evidence) -> float:
    """The share of the sender's rate that its remaining ports have, in percent."""
    return 100 * (PLANES - len(lab.drawn["planes"])) / PLANES


def left_of_uplinks(lab: Evidence) -> float:
    """The share of the rack's uplinks that remain when the transceiver fails, in percent."""
    return 100 - _lost_uplinks(lab) * 100 / (PLANES * UPLINKS)


def left_if_even(lab: Evidence) -> float:
    """The rack's rate if all planes were to carry the same as the damaged one, in percent."""
    return 100 - _lost_uplinks(lab) * 100 / UPLINKS


def kept_ports(lab: Evidence) -> float:
    """Goodput in force over goodput before, in the run ports, in percent."""
    return _kept(lab, "ports")


def kept_switch(lab: Evidence) -> float:
    """The same in the run switch."""
    return _kept(lab, "switch")


def kept_transceiver(lab: Evidence) -> float:
    """The same of all flows together in the run transceiver."""
    return _kept(lab, "transceiver")


def packets_in_plane(lab: Evidence) -> float:
    """The share of the packets sent over the damaged plane from 1.8 to 2.2 s, in percent."""
    sent = lab.frame("transceiver", "transmissions")
    sent = sent.filter(pl.col("t").is_between(1.8, 2.2))
    return 100 * sent.filter(pl.col("plane") == lab.drawn["plane"]).height / sent.height


def _lost_uplinks(lab: Evidence) -> int:
    return int(lab.drawn["last"]) + 1


def _kept(lab: Evidence, run: str) -> float:
    summary = lab.summary(run)
    (fault,) = summary.faults
    before = sum(flow.goodput_before_bps or 0.0 for flow in summary.flows)
    return 100 * sum(flow.goodput_bps or 0.0 for flow in fault.flows) / before
