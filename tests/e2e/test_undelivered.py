"""A run ends though a sender waits for longer, and tells what was still under way."""

import json

import pytest

from testbed.model.errors import ExitStatus
from testbed.results.analysis.verdict import NOT_DELIVERED
from tests.e2e.conftest import UNDRAWN, CommandLine
from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.root, pytest.mark.e2e]


def test_a_timeout_longer_than_the_run_ends_it_all_the_same(testbed: CommandLine) -> None:
    """The one packet that is outstanding is dropped, and RoCE waits 67 ms real for its ACK."""
    cut = {"kind": "blackhole", "target": "h0>p0_t0_0", "at": "500 ms", "for": "700 ms"}
    one_way = {"pairs": [["h0", "h4"]], "bidirectional": False}
    scenario = testbed.scenario(
        topology={"base": "clos-1plane-roce", "dilation": 2500},
        duration="1500 ms",
        workload={"kind": "write_bw", "message_size": "4 KiB", "depth": 1, **one_way},
        transport={"kind": "roce", "ack_timeout": "67 ms"},
        timeline=[cut],
    )
    process = testbed.start("run", scenario, "--results", testbed.results, "--json", UNDRAWN)
    out, err = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == ExitStatus.FAILED, err
    summary = json.loads(out)["summary"]
    integrity = summary["integrity"]
    assert integrity["bytes_lost"] == integrity["bytes_under_way"] == 4096
    assert summary["verdict"] == "invalid"
    assert NOT_DELIVERED in summary["reasons"]
