"""Fabrics for RoCE: with priority flow control, which only the simulator has, and without it."""

from collections.abc import Mapping
from typing import Any

from testbed.runs.job import Form

XOFF_BDP = 1.0
"""How much of what came over one link may wait in a switch until that link is paused, in BDP."""

PFC: Mapping[str, Any] = {
    "base": "clos-1plane-roce",
    "name": "clos-16host-pfc",
    "description": "",
    "t0_per_plane": 4,
    "pause": {"xoff": f"{XOFF_BDP:g} BDP", "xon": "0.5 BDP"},
}
"""The paper's cluster D for RoCE: 16 hosts in four racks; a full queue pauses who fills it."""

ONLY_SIMULATED: Mapping[Form, str] = {
    "emulated": "Linux has no priority flow control, which holds RoCE's senders back"
}


def without_pause(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fabric of a scenario without flow control: its queues hold all that is outstanding."""
    topology = {**data["topology"], "name": "clos-16host-roce"}
    del topology["pause"]
    return {"topology": topology}
