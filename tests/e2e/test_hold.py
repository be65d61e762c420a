"""`testbed run --hold`: faults by hand while traffic goes on, a report when the user ends it."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from testbed.model.errors import ExitStatus
from tests.e2e.conftest import TINY, UNDRAWN, CommandLine
from tests.e2e.test_kill import assert_all_gone, descendants
from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.root, pytest.mark.e2e]

SHORT = {"duration": "1 s", **TINY}
LINK = "p0_t0_0--p0_t1_0"
FINE = {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}
"""How a run on a machine that is busy may end."""


@contextmanager
def _held(testbed: CommandLine, *options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run whose timeline is over, with its directory."""
    scenario = testbed.scenario(**SHORT)
    process = testbed.start("run", scenario, "--results", testbed.results, "--json", *options)
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if "held;" in line:
                break
        assert process.poll() is None, said
        (directory,) = testbed.results.glob("*/2*")
        assert f"testbed fault inject {directory}" in "".join(said)
        yield process, directory
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _say(testbed: CommandLine, *words: str | Path) -> tuple[int, str]:
    process = testbed.start("fault", *words)
    out, err = process.communicate(timeout=WATCHDOG_S)
    return process.returncode, out + err


def _summary(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode in FINE, err
    summary: dict[str, Any] = json.loads(out)["summary"]
    return summary


def test_faults_by_hand_are_measured_like_those_of_the_timeline(testbed: CommandLine) -> None:
    """One healed by hand, one still in force when the user ends the run: nothing is lost by it."""
    with _held(testbed, "--hold") as (process, directory):
        assert _say(testbed, "inject", directory, "cut", LINK)[0] == 0
        time.sleep(0.5)
        status, printed = _say(testbed, "heal", directory, "0")
        assert (status, printed.partition(";")[0].strip()) == (0, f"0: cut of {LINK}: healed")
        assert "carrier" not in printed, "it was down while the fault was in force"
        status, told = _say(testbed, "inject", directory, "loss", LINK)
        assert status == ExitStatus.WRONG_INPUT
        assert "probability" in told
        assert _say(testbed, "inject", directory, "blackhole", "h0")[0] == 0
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        summary = _summary(process)
    cut, blackhole = summary["faults"]
    assert (cut["kind"], blackhole["kind"], blackhole["target"]) == ("cut", "blackhole", "h0")
    assert cut["effective_s"] > 1.0, "after the timeline"
    assert cut["stall_rtt"] > 0
    assert cut["flows_affected"] == 2
    assert summary["duration_s"] > cut["healed_s"] > cut["effective_s"] + 0.5
    assert blackhole["healed_s"] >= summary["duration_s"], "so that what is under way arrives"
    assert blackhole["proof"]["until_end"]["passed"] == [0, 0]
    assert summary["integrity"]["bytes_lost"] == 0
    assert summary["integrity"]["bytes_sent"] == summary["integrity"]["bytes_verified"] > 0
    assert cut["target"] in (directory / "report.html").read_text()
    last_s = max(flow["goodput_run_bps"] for flow in summary["flows"])
    assert last_s > 0.2 * summary["flows"][0]["undamaged_bps"], "it went on sending"


def test_all_faults_by_hand_are_healed_at_once(testbed: CommandLine) -> None:
    with _held(testbed, "--hold", UNDRAWN) as (process, directory):
        for kind, target in (("cut", LINK), ("blackhole", "h0")):
            assert _say(testbed, "inject", directory, kind, target)[0] == 0
        status, printed = _say(testbed, "heal", directory, "all")
        assert status == 0
        assert [line.partition(";")[0].strip() for line in printed.splitlines()] == [
            f"0: cut of {LINK}: healed",
            "1: blackhole of h0: healed",
        ]
        again = _say(testbed, "heal", directory, "all")
        assert again == (0, "no fault that heals is in force\n")
        process.send_signal(signal.SIGINT)
        summary = _summary(process)
    assert all(fault["healed_s"] < summary["duration_s"] for fault in summary["faults"])
    assert summary["integrity"]["bytes_lost"] == 0


def test_a_limit_ends_it(testbed: CommandLine) -> None:
    with _held(testbed, "--hold-for", "800ms", UNDRAWN) as (process, _):
        summary = _summary(process)
    assert summary["duration_s"] == pytest.approx(1.8)
    assert summary["faults"] == []


def test_killing_it_leaves_nothing(testbed: CommandLine) -> None:
    with _held(testbed, "--hold") as (process, directory):
        parts = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert_all_gone(parts)
        assert process.wait(WATCHDOG_S) == 128 + signal.SIGTERM
        assert not (directory / "summary.json").exists()


def _operate(testbed: CommandLine, *words: str | Path) -> tuple[int, Any]:
    """Call testbed ev or testbed port; returns its exit status, and what it printed as JSON."""
    process = testbed.start(*words, "--json")
    out, err = process.communicate(timeout=WATCHDOG_S)
    answered = process.returncode < ExitStatus.WRONG_INPUT
    return process.returncode, json.loads(out) if answered else err


def test_a_stopped_host_obeys_no_command_late_and_does_not_hold_up_the_end(
    testbed: CommandLine,
) -> None:
    deny = "ev", "deny"
    with _held(testbed, "--hold", UNDRAWN) as (process, run):
        assert _say(testbed, "inject", run, "freeze", "h0")[0] == 0
        status, said = _operate(testbed, *deny, run, "h0-h1", "p0")
        assert status > ExitStatus.WRONG_INPUT
        assert "h0 has not answered" in said
        assert _say(testbed, "heal", run, "all")[0] == 0
        _, listed = _operate(testbed, "ev", "list", run, "h0-h1")
        assert not any(ev["denied_by"] for ev in listed)
        assert _say(testbed, "inject", run, "freeze", "h0")[0] == 0
        assert _operate(testbed, *deny, run, "h0-h1", "p0")[0] > ExitStatus.WRONG_INPUT
        process.send_signal(signal.SIGINT)
        _summary(process)


def test_an_operator_denies_probes_and_disables_while_real_packets_flow(
    testbed: CommandLine,
) -> None:
    with _held(testbed, "--hold") as (process, run):
        _, listed = _operate(testbed, "ev", "list", run, "h0-h1")
        path = listed[0]["path"]
        status, denied = _operate(testbed, "ev", "deny", run, "h0-h1", path)
        assert status == 0
        assert [ev["state"] for ev in denied if ev["path"] == path] == ["DENIED"]
        status, probed = _operate(testbed, "ev", "probe", run, "h0-h1", "--within", "10 s")
        assert status == 0
        assert len(probed) == len(listed)
        _, ports = _operate(testbed, "port", "disable", run, "h0", "0")
        assert ports[0]["state"] == "disabled"
        _, again = _operate(testbed, "ev", "list", run, "h0-h1")
        assert not any(ev["active"] for ev in again if ev["port"] == 0)
        assert _operate(testbed, "port", "enable", run, "h0", "0")[0] == 0
        status, said = _operate(testbed, "ev", "deny", run, "h0-h1", "p7/t1_99")
        assert status == ExitStatus.WRONG_INPUT
        assert "command.ev: found p7/t1_99" in said
        process.send_signal(signal.SIGINT)
        _summary(process)
    status, said = _operate(testbed, "ev", "list", run, "h0-h1")
    assert status == ExitStatus.WRONG_INPUT
    assert "under way" in said
    rows = pl.read_parquet(run / "operator.parquet")
    assert rows["kind"].to_list()[0] == "deny"
    assert "refused" in rows["result"].to_list()[-1]
