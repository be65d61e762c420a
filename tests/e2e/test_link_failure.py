"""A link failure ridden out, from the scenario file to the report."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.experiment.experiment import Experiment
from testbed.emulation.experiment.outside import run_experiment
from testbed.emulation.fabric import openvswitch
from testbed.emulation.fabric.openvswitch import Availability
from testbed.model.files.scenarios import load_scenario
from testbed.results.analyse import analyse
from tests.e2e.conftest import CommandLine
from tests.judging import until_trusted

pytestmark = [pytest.mark.root, pytest.mark.e2e]

LINK = "p0_t0_0--p0_t1_1"


def _timeline(kind: str) -> list[dict[str, str]]:
    return [{"kind": kind, "target": LINK, "at": "2 s", "for": "1500 ms"}]


ACKS_LOST = 2
"""ACKs that a link may take with it, at most: a message ends once in six round trips."""


def _assert_ridden_out(summary: dict[str, Any]) -> None:
    integrity = summary["integrity"]
    assert integrity["bytes_sent"] > 10_000_000
    assert integrity["bytes_verified"] == integrity["bytes_sent"]
    assert integrity["bytes_lost"] == integrity["bytes_corrupted"] == 0
    (fault,) = summary["faults"]
    assert fault["flows_affected"] == 2
    assert fault["return_last_rtt"] is not None
    for flow in summary["flows"]:
        lost, spurious = flow["packets_lost"], flow["packets_spurious"]
        # Where an ACK is lost on the dead link, the packet that asked for it is sent again.
        assert 0 < lost <= flow["packets_retransmitted"] <= lost + spurious + ACKS_LOST
        paths = {ev["path"]: ev for ev in flow["evs"]}
        assert paths["p0/t1_1"]["packets_lost"] > 0
        assert sum(ev["packets_lost"] for ev in flow["evs"]) == paths["p0/t1_1"]["packets_lost"]


def _assert_in_time(summary: dict[str, Any]) -> None:
    (fault,) = summary["faults"]
    assert 0.5 < fault["detection_rtt"] <= 2
    assert fault["detection_last_rtt"] <= 3
    assert fault["stall_rtt"] <= 5
    assert fault["recovery_rtt"] <= 10
    assert fault["deficit_rtt"] < 2
    assert all(flow["before_fraction"] > 0.95 for flow in summary["flows"])


@pytest.mark.alone
@pytest.mark.parametrize(("kind", "drawn"), [("blackhole", True), ("cut", False)])
def test_mrc_rides_out_a_failed_link(testbed: CommandLine, kind: str, drawn: bool) -> None:
    """And its directory is complete."""
    summary = testbed.run(testbed.scenario(timeline=_timeline(kind)), "--seed", "3", drawn=drawn)
    _assert_ridden_out(summary)
    _assert_complete(summary)
    if drawn:
        _assert_drawn(summary)
    (fault,) = summary["faults"]
    assert (fault["kind"], fault["target"]) == (kind, LINK)
    assert fault["effective_s"] >= fault["requested_s"]
    assert fault["healed_s"] >= 3.5 * summary["slower"]
    _assert_in_time(summary)


def _assert_complete(summary: dict[str, Any]) -> None:
    run = Path(summary["run"])
    assert summary["seed"] == 3
    assert json.loads((run / "summary.json").read_text())["seed"] == 3
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["scenario"]["topology"]["name"] == "clos-4plane"
    assert not (run / "raw").exists()
    wire = {direction for direction, gap in _gaps(summary).items() if gap}
    ends = LINK.split("--")
    assert wire <= {">".join(ends), ">".join(reversed(ends))}, "Open vSwitch keeps its own account"
    health = map(json.loads, (run / "health.jsonl").read_text().splitlines())
    watched = {name for line in health for name in line.get("resident_bytes", {})}
    daemons = {"ovsdb-server", "ovs-vswitchd"} if manifest["openvswitch"]["datapath"] else set()
    assert watched >= {"h0", "h4", "run", "controller"} | daemons


def _assert_drawn(summary: dict[str, Any]) -> None:
    run = Path(summary["run"])
    report = (run / "report.html").read_text()
    assert LINK in report
    assert 'src="http' not in report
    assert {figure.suffix for figure in (run / "figures").iterdir()} == {".png"}


@pytest.mark.alone
def test_without_a_fault_nothing_is_lost(testbed: CommandLine) -> None:
    summary = testbed.run(testbed.scenario(duration="3 s"))
    for flow in summary["flows"]:
        assert flow["packets_lost"] == flow["packets_retransmitted"] == 0
    assert not any(_gaps(summary).values())
    links = summary["links"]
    left = sum(link["offered"] for link in links if link["direction"].startswith("h"))
    came = sum(link["packets"] for link in links if ">h" in link["direction"])
    assert left == came > sum(flow["packets_sent"] for flow in summary["flows"])
    assert max(link["peak_bytes"] for link in links) > 0
    assert all(flow["before_fraction"] > 0.98 for flow in summary["flows"])


def _gaps(summary: dict[str, Any]) -> dict[str, int]:
    """Packets of each link direction that neither arrived nor were dropped for a known cause."""
    assert len(summary["links"]) == 2 * 64
    return {
        link["direction"]: link["offered"]
        - sum(link[fate] for fate in ("packets", "full", "lost", "blackholed", "cut"))
        for link in summary["links"]
    }


@pytest.fixture
def _no_open_vswitch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that seems to have none."""
    hidden = nullcontext(lambda: Availability(None, "hidden"))
    monkeypatch.setattr(openvswitch, "trial", lambda: hidden)


@pytest.mark.alone
@pytest.mark.usefixtures("_no_open_vswitch")
def test_without_open_vswitch_the_link_itself_is_acted_on(testbed: CommandLine) -> None:
    scenario = load_scenario(str(testbed.scenario(timeline=_timeline("cut"))))

    def run(slower: int) -> dict[str, Any]:
        directory = testbed.directory / f"run-{slower}"
        directory.mkdir()
        slowed = scenario.at_dilation(slower * scenario.topology.dilation)
        run_experiment(Experiment(slowed, directory), lambda _what, _done: None)
        summary: dict[str, Any] = analyse(directory, drawn=False).model_dump(mode="json")
        return summary | {"run": directory}

    summary = until_trusted(run)
    _assert_ridden_out(summary)
    assert summary["faults"][0]["actuator"] == "link"
    manifest = json.loads((summary["run"] / "manifest.json").read_text())
    assert manifest["openvswitch"]["datapath"] is None
    _assert_in_time(summary)


@pytest.mark.usefixtures("_no_open_vswitch")
def test_a_run_with_grey_and_dead_links_accounts_for_every_packet(testbed: CommandLine) -> None:
    """Over all links: what hosts sent is what hosts got and what was dropped for a known cause."""
    when = {"at": "500 ms", "for": "2 s"}
    timeline: list[dict[str, Any]] = [
        {"kind": "loss", "target": LINK, "probability": 0.05, **when},
        {"kind": "corrupt", "target": "p1_t0_0--p1_t1_0", "probability": 0.05, **when},
        {"kind": "blackhole", "target": "p2_t0_0--p2_t1_2", **when},
    ]
    blind = {"kind": "mrc", "spray": "blind"}  # no sender leaves a path before it has lost a packet
    file = testbed.scenario(duration="4 s", timeline=timeline, transport=blind)
    scenario = load_scenario(str(file))
    run = testbed.directory / "run"
    run.mkdir()
    run_experiment(Experiment(scenario, run), lambda _what, _done: None)
    summary = analyse(run, drawn=False).model_dump(mode="json")
    assert summary["integrity"]["bytes_verified"] == summary["integrity"]["bytes_sent"]
    links = summary["links"]
    assert not any(_gaps(summary).values())
    total = {fate: sum(link[fate] for link in links) for fate in ("full", "lost", "blackholed")}
    left = sum(link["offered"] for link in links if link["direction"].startswith("h"))
    came = sum(link["packets"] for link in links if ">h" in link["direction"])
    assert left == came + sum(total.values())
    assert min(total["lost"], total["blackholed"]) > 0
    struck = {fate: {link["direction"] for link in links if link[fate]} for fate in _FATES}
    for fate, fault in zip(_FATES, timeline, strict=True):
        ends = fault["target"].split("--")
        assert struck[fate] == {">".join(ends), ">".join(reversed(ends))}, fate


_FATES = ("lost", "corrupted", "blackholed")
