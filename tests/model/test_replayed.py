"""A timeline that makes the faults by hand of a run again."""

from collections.abc import Mapping

import pytest

import testbed
from testbed.model.faults.record import FaultRecord, replayed_timeline
from testbed.model.files.scenarios import load_scenario

S = 1_000_000_000
T0_NS = 7 * S
LINK = "p0_t0_0--p0_t1_0"
HEALTHY = load_scenario("healthy")
BLACKHOLE = {"kind": "blackhole", "target": [LINK], "for": "30 s"}
FLAP = {"kind": "flap", "target": [LINK], "for": "20 s", "period": "2 s", "count": 10}


def record(entry: Mapping[str, object], asked_s: float, healed_s: float | None) -> FaultRecord:
    return FaultRecord(
        0,
        str(entry["kind"]),
        LINK,
        (),
        "link",
        T0_NS + round(asked_s * S),
        heal_requested_ns=None if healed_s is None else T0_NS + round(healed_s * S),
        entry=dict(entry),
    )


@pytest.mark.parametrize(
    ("until_s", "lasts"), [(None, "3 s"), (5.0, "3 s"), (4.0, "30 s"), (2.0, "30 s"), (1.0, None)]
)
def test_a_fault_lasts_until_it_was_healed_if_that_had_happened(
    until_s: float | None, lasts: str | None
) -> None:
    until_ns = None if until_s is None else round(until_s * S)
    timeline = replayed_timeline(HEALTHY, [record(BLACKHOLE, 1.0, 4.0)], T0_NS, until_ns)
    assert [entry["for"] for entry in timeline] == ([] if lasts is None else [lasts])


@pytest.mark.parametrize(("healed_s", "count"), [(None, 10), (21.0, 10), (4.5, None)])
def test_a_flap_that_was_healed_by_hand_can_be_run_again(
    healed_s: float | None, count: int | None
) -> None:
    (entry,) = replayed_timeline(HEALTHY, [record(FLAP, 1.0, healed_s)], T0_NS)
    assert entry.get("count") == count
    assert len(testbed.changed(HEALTHY, {"timeline": [entry], "duration": "60 s"}).timeline) == 1
