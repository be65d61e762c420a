"""Endpoints and the controller that end amid a run, by a fault of the timeline."""

import pytest

from tests.e2e.conftest import CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.patient]

LINK = "p0_t0_0--p0_t1_1"


def test_a_run_goes_on_without_what_was_killed(testbed: CommandLine) -> None:
    """The other flows lose nothing; what is unknown is said; later faults are owned up to."""
    timeline = [
        {"kind": "kill", "target": "h4", "at": "1400 ms"},
        {"kind": "blackhole", "target": LINK, "at": "1500 ms", "for": "300 ms"},
        {"kind": "kill", "target": "controller", "at": "2200 ms"},
        {"kind": "cut", "target": LINK, "at": "2500 ms", "for": "300 ms"},
    ]
    pairs = [["h0", "h4"], ["h1", "h5"]]
    workload = {"kind": "write_bw", "pairs": pairs, "message_size": "256 KiB"}
    scenario = testbed.scenario(timeline=timeline, workload=workload, duration="4 s")
    summary = testbed.run(scenario, timed=False)
    integrity = summary["integrity"]
    assert (integrity["bytes_lost"], integrity["bytes_corrupted"]) == (0, 0)
    assert integrity["bytes_unaccounted"] > 0
    flows = {(one["src"], one["dst"]): one for one in summary["flows"]}
    last = 0.9 * summary["duration_s"]
    assert flows["h1", "h5"]["goodput_run_bps"] > 0.5 * flows["h1", "h5"]["attainable_bps"]
    assert 0 < flows["h0", "h4"]["goodput_run_bps"] < flows["h1", "h5"]["goodput_run_bps"]
    kinds = [(one["kind"], one["target"], one["healed_s"] is not None) for one in summary["faults"]]
    assert kinds == [
        ("kill", "h4", False),
        ("blackhole", LINK, True),
        ("kill", "controller", False),
    ]
    assert all(one["effective_s"] < last for one in summary["faults"])
    assert any("1 faults of the timeline were not injected" in one for one in summary["reasons"])
