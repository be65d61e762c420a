"""Measures of a run through the kernel that misled once."""

from pathlib import Path

import pytest

from testbed.model.run_files.layout import SUMMARY
from testbed.model.scenario import Expect
from testbed.model.summary import Summary
from testbed.model.summary.unit import NEVER
from testbed.results.analysis.metrics import evaluate
from tests.e2e.conftest import CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e]


def test_an_outage_of_four_qps_is_no_shorter_than_it_was(testbed: CommandLine) -> None:
    """RoCE with four QPs, whose NIC's link is cut for 2 s: each is at a quarter of the rate.

    200 packets take longer than a fall of goodput had to last to count: the recovery was 0, and a
    bound of 5 round trips was met. On a late machine, too, the outage is a lower bound.
    """
    run = testbed.run(
        testbed.scenario(
            topology="clos-1plane-roce",
            transport={"kind": "roce", "qps": 4},
            workload={
                "kind": "write_bw",
                "pairs": [["h0", "h4"]],
                "message_size": "256 KiB",
                "bidirectional": False,
            },
            timeline=[{"kind": "cut", "target": "h0--p0_t0_0", "at": "2 s", "for": "2 s"}],
            duration="7 s",
        ),
        timed=False,
    )
    summary = Summary.model_validate_json(Path(run["run"], SUMMARY).read_text())
    (fault,) = summary.faults
    outage = 2e6 / summary.base_rtt_us
    for name in ("stall_rtt", "in_order_delay_rtt", "recovery_rtt"):
        value = fault.values[name]
        assert value is not None
        assert value > outage
    assert fault.healed_s is not None
    assert fault.effective_s is not None
    lasted = (fault.healed_s - fault.effective_s) * 1e6 / summary.base_rtt_us
    assert lasted > 0.99 * outage
    assert fault.values["capacity_lost_rtt"] == pytest.approx(lasted, rel=0.02, abs=0.3)
    assert fault.values["detection_rtt"] == NEVER
    assert (fault.flows_affected, fault.flows_lossy, fault.flows_noticed) == (4, 4, 0)
    (bound,) = evaluate(
        summary, Expect.model_validate({"faults": {"recovery_rtt": {"at_most": 5}}})
    )
    assert not bound.holds
