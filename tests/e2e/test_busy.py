"""A busy host in a run through the kernel: of the timeline, and by hand."""

import json
from pathlib import Path

import pytest

from testbed.model.faults.record import FAULTS
from testbed.model.run_files.layout import SUMMARY
from testbed.model.summary import Summary
from tests.e2e.conftest import TINY, CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e]


def test_a_busy_host_refuses_packets_and_says_how_many(testbed: CommandLine) -> None:
    busy = {"kind": "busy", "target": "h4", "at": "1500 ms", "for": "1 s"}
    run = testbed.run(
        testbed.scenario(
            timeline=[
                {**busy, "refuse": "no_pkt_buffer", "share": 0.2},
                {**busy, "at": "3 s", "penalty": 64},
            ],
        ),
        timed=False,
    )
    summary = Summary.model_validate_json(Path(run["run"], SUMMARY).read_text())
    assert summary.integrity.bytes_lost == summary.integrity.bytes_corrupted == 0
    assert summary.qps_in_error == 0
    records = [json.loads(line) for line in Path(run["run"], FAULTS).read_text().splitlines()]
    refusing, penalising = (record["proof"] for record in records)
    assert refusing["injected"]["busy"] == {"refusal": "no_pkt_buffer", "refused": 0.2}
    assert refusing["healed"]["busy"] == {}
    assert refusing["healed"]["refused"] > 0
    assert penalising["injected"]["busy"] == {"penalty": 64}
    assert [record["error"] for record in records] == [None, None]
    sent_again = sum(flow.packets_retransmitted for flow in summary.flows)
    assert sent_again >= refusing["healed"]["refused"]


def test_a_busy_host_recovers_when_the_run_ends(testbed: CommandLine) -> None:
    """The fault lasts as long as the run: its host has to answer after the senders have stopped."""
    busy = {"kind": "busy", "target": "h1", "penalty": 64, "at": "500 ms", "for": "1500 ms"}
    run = testbed.run(testbed.scenario(duration="2 s", timeline=[busy], **TINY), timed=False)
    (line,) = Path(run["run"], FAULTS).read_text().splitlines()
    record = json.loads(line)
    assert record["error"] is None
    assert record["proof"]["healed"]["busy"] == {}
