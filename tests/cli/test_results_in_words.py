"""What commands say of results in words: exit statuses, effects of faults, the way of a run."""

import json
import os
from pathlib import Path

import pytest

from testbed.cli.fault import effect_of
from testbed.host.outcome import TrafficProgress

from .conftest import Call

NOBODY = 65534


@pytest.mark.simulated
def test_an_exit_status_other_than_0_is_explained(call: Call) -> None:
    bound = ("--set", "expect.run={duration_s: 1}", "--set", "duration=3 s", "--set", "timeline=[]")
    called = call("simulate", "link-failure", "--no-figures", "--set", "expect.faults={}", *bound)
    assert called.status == 1
    assert called.err.endswith("exit status 1: 1 of 1 expectations of the scenario are not met\n")


@pytest.mark.simulated
def test_the_report_shows_the_failure_before_any_table(call: Call) -> None:
    """Verdict, what happened in two sentences, and the picture; then the numbers."""
    cut = "timeline=[{kind: cut, target: h0, at: 10 RTT, for: 9 RTT}]"
    changes = ("--set", "duration=30 RTT", "--set", cut, "--set", "expect={}")
    assert call("simulate", "link-failure", *changes).status == 0
    (report,) = Path("results").glob("link-failure/2*/report.html")
    order = ('class="verdict', 'class="lead"', "Failover, packet by packet", "<table", "Goodput")
    places = [report.read_text(encoding="utf-8").index(text) for text in order]
    assert places == sorted(places)


LATE = """\
name: late
topology: clos-4plane
duration: 1 s
workload:
  kind: connections
  matrix:
    - {src: h0, dst: h4, start: 0 s, size: 1000000}
    - {src: h1, dst: h5, start: 200 us, size: 1000000}
    - {src: h2, dst: h6, start: 5 ms, size: 1000000}
"""


@pytest.mark.simulated
def test_transfers_that_did_not_finish_are_told_everywhere(call: Call) -> None:
    Path("late.yaml").write_text(LATE)
    warned = call("validate", "./late.yaml")
    assert warned.status == 0
    assert "2 of 3 transfers begin when the run is over" in warned.err + warned.out
    told = "1 of 3 finished, 2 had not begun when the run ended"
    called = call("simulate", "./late.yaml", "--results", "runs")
    assert called.status == 1
    assert f"transfer: {told}" in called.out
    assert "operations: unfinished exactly 0: 2 at transfer" in called.out
    (run,) = Path("runs/late").glob("2*")
    for file in ("report.html", "junit.xml"):
        assert told in (run / file).read_text()
    (measured,) = json.loads((run / "summary.json").read_text())["operations"]
    assert (measured["planned"], measured["begun"], measured["count"]) == (3, 1, 1)
    assert measured["median_ms"] == "never"
    compared = call("compare", str(run), str(run), "--json")
    rows = {row["name"]: row["cells"][0] for row in json.loads(compared.out)["rows"]}
    for name, value in (
        ("planned", 3),
        ("begun", 1),
        ("finished", 1),
        ("completion, median", "never"),
    ):
        assert rows[f"transfer: {name}"]["value"]["median"] == value
    agreed = call("simulate", "./late.yaml", "--no-figures", "--set", "expect.operations.count=1")
    assert agreed.status == 0


def test_a_user_is_told_what_works_without_root(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    called = call("doctor")
    assert called.status == 0
    assert "without root, this works here" in called.out
    assert "root adds emulation" in called.out
    assert "MISSING" not in called.out


@pytest.mark.parametrize(
    ("proof", "words"),
    [
        ({}, ""),
        ({"injected": {"carrier": [False, False]}}, "carrier down"),
        ({"injected": {"carrier": True}}, "carrier up"),
        (
            {"injected": {"carrier": [True, True], "read_back": {"loss_ppm": [50_000]}}},
            "loses 5%; carrier up",
        ),
        (
            {"injected": {}, "until_end": {"passed": [900, 50], "dropped": [30, 1]}},
            "packets: 950 got through, 31 dropped",
        ),
    ],
)
def test_the_list_of_faults_has_their_effects(proof: dict[str, object], words: str) -> None:
    assert effect_of({"proof": proof}) == words


def test_a_fault_that_has_healed_is_shown_by_what_it_did_to_packets() -> None:
    """Not by the state of the link under it, which no longer holds."""
    at_end = {"carrier": [False, False], "read_back": {"blackhole": [1]}, "dropped": [12, 0]}
    record = {"proof": {"until_end": at_end, "healed": {"carrier": [True, True]}}}
    assert effect_of({**record, "healed_ns": 5}) == "packets: 12 dropped"


def test_a_run_under_way_is_described_by_its_traffic() -> None:
    progress = TrafficProgress("running", 10 * 10**9)
    assert progress.describe(0, 0, 0) == "running"
    assert progress.describe(2 * 10**9, 2_500_000, 0).endswith(
        "running: 2 s of 10 s, 10 Mbit/s arrive at the hosts, 0 packets dropped"
    )
    assert "30 Mbit/s" in progress.describe(3 * 10**9, 6_250_000, 1234)
