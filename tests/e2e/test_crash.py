"""Endpoints and the controller that end or stand still amid a run, by a fault of the timeline."""

import pytest

from tests.e2e.conftest import CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e]

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
    flows = {(flow["src"], flow["dst"]): flow for flow in summary["flows"]}
    last = 0.9 * summary["duration_s"]
    assert flows["h1", "h5"]["goodput_run_bps"] > 0.5 * flows["h1", "h5"]["undamaged_bps"]
    assert 0 < flows["h0", "h4"]["goodput_run_bps"] < flows["h1", "h5"]["goodput_run_bps"]
    kinds = [
        (fault["kind"], fault["target"], fault["healed_s"] is not None)
        for fault in summary["faults"]
    ]
    assert kinds == [
        ("kill", "h4", False),
        ("blackhole", LINK, True),
        ("kill", "controller", False),
    ]
    assert all(fault["effective_s"] < last for fault in summary["faults"])
    assert any(
        "1 faults of the timeline were not injected" in reason for reason in summary["reasons"]
    )


def test_an_endpoint_that_stands_still_goes_on(testbed: CommandLine) -> None:
    """Its peer waits: nothing is lost and no QP given up, though it hears nothing on any path."""
    freeze = {"kind": "freeze", "target": "h1", "at": "1500 ms", "for": "500 ms"}
    workload = {"kind": "write_bw", "pairs": [["h0", "h1"]], "message_size": "256 KiB"}
    scenario = testbed.scenario(
        topology="clos-tiny", timeline=[freeze], workload=workload, duration="4 s"
    )
    summary = testbed.run(scenario, timed=False)
    integrity = summary["integrity"]
    assert (integrity["bytes_lost"], integrity["bytes_corrupted"]) == (0, 0)
    assert summary["qps_in_error"] == 0
    (seen,) = summary["faults"]
    assert seen["proof"] == {
        "injected": {"stopped": True},
        "until_end": {"stopped": True},
        "healed": {"stopped": False},
    }
    assert seen["healed_s"] - seen["effective_s"] > 0.45
    assert seen["stall_ms"] > 400, "nothing was delivered by a host that stood still"
    assert min(flow["goodput_run_bps"] for flow in summary["flows"]) > 0
