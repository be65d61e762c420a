"""Metrics do not contradict each other over random fabrics, faults and transports."""

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from testbed.model.summary import Summary
from tests.drawn import schedules

from .measuring import measured, writes

pytestmark = [pytest.mark.simulated, pytest.mark.long]

DURATION_S = 3
TRANSPORTS = (
    {"kind": "mrc"},
    {"kind": "mrc", "spray": "blind"},
    {"kind": "mrc", "congestion": "fixed", "backups": 0.25},
    {"kind": "roce"},
    {"kind": "roce", "qps": 2},
)
ALIKE = 0.01
"""Goodput that differs by less than this share is the same: control packets differ, too."""


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario whose fault has a strength."""

    topology: dict[str, Any]
    pairs: list[tuple[str, str]]
    fault: dict[str, Any]
    transport: dict[str, Any]
    seed: int

    def run(self, **strength: object) -> Summary:
        return measured(
            writes(
                self.topology,
                self.pairs,
                [self.fault | strength],
                duration=f"{DURATION_S} s",
                transport=self.transport,
                seed=self.seed,
            )
        )


def drawn(seed: int) -> Case:
    """A small fabric, some flows, a fault that begins within the run and may outlast it."""
    chance = Random(seed)
    transport = dict(chance.choice(TRANSPORTS))
    planes = 1 if transport["kind"] == "roce" else chance.randint(1, 4)
    t1, hosts = chance.randint(1, 3), chance.randint(1, 3)
    plane = chance.randrange(planes)
    targets = [f"p{plane}_t0_0--p{plane}_t1_{chance.randrange(t1)}", f"h0--p{plane}_t0_0"]
    pairs = [(f"h{i}", f"h{hosts + chance.randrange(hosts)}") for i in range(hosts)]
    at_ms = chance.choice([0, 700, 1500])
    return Case(
        topology={
            "name": "drawn",
            "planes": planes,
            "t0_per_plane": 2,
            "t1_per_plane": t1,
            "hosts_per_t0": hosts,
            "dilation": 20_000,
        },
        pairs=pairs,
        fault={
            "target": chance.choice(targets),
            "at": f"{at_ms} ms",
            "for": f"{chance.choice([60, 400, 1400])} ms",
        },
        transport=transport,
        seed=seed,
    )


def assert_consistent(summary: Summary) -> None:
    contradictions = [reason for reason in summary.reasons if "contradict" in reason]
    assert not contradictions


@pytest.mark.parametrize("seed", range(schedules(6)))
@pytest.mark.parametrize("kind", ["blackhole", "cut"])
def test_what_stops_everything(seed: int, kind: str) -> None:
    summary = drawn(seed).run(kind=kind)
    assert_consistent(summary)
    for fault in summary.faults:
        for flow in fault.flows:
            assert flow.loss_share is None or 0 <= flow.loss_share <= 1
            assert flow.residual_loss is None or 0 <= flow.residual_loss <= 1


@pytest.mark.parametrize("seed", range(schedules(6)))
@pytest.mark.parametrize(
    ("kind", "key", "weak", "strong"),
    [("loss", "probability", 0.005, 0.2), ("degrade", "factor", 0.8, 0.2)],
)
def test_who_delivers_less_misses_more(
    seed: int, kind: str, key: str, weak: float, strong: float
) -> None:
    """Of two runs that differ only in the fault's strength."""
    case = drawn(seed)
    runs = [case.run(kind=kind, **{key: strength}) for strength in (weak, strong)]
    for summary in runs:
        assert_consistent(summary)
    for one, other in zip(*(summary.flows for summary in runs), strict=True):
        less, more = sorted((one, other), key=lambda flow: flow.goodput_run_bps)
        if less.goodput_run_bps < more.goodput_run_bps * (1 - ALIKE):
            missed = [f.capacity_lost_bytes + f.deficit_bytes for f in (less, more)]
            assert missed[0] > missed[1]
