"""The page of an emulated run in a real browser: real packets, slow enough for a person."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.live.browser import choose, expect, needs_browser, opened
from tests.live.watched import LINK, MAPPED, address, run_below, started
from tests.waiting import wait_until

pytestmark = [needs_browser, pytest.mark.root, pytest.mark.long]


def test_a_server_that_is_killed_comes_back_and_the_page_goes_on(
    watched: subprocess.Popen[str], tmp_path: Path
) -> None:
    with opened(address(watched), may_disconnect=True) as page:
        expect(page.locator("#chips .live")).to_have_text("live")
        server = _server_of(watched.pid)
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: _server_of(watched.pid) not in {0, server}, "another server")
        expect(page.locator("#chips .live")).to_have_text("live")
        choose(page, LINK)
        page.get_by_role("button", name="blackhole", exact=True).click()
        expect(page.locator("#report")).to_contain_text("detected after")
    records = [json.loads(line) for line in (run_below(tmp_path) / "stream.ndjson").open()]
    assert [record["id"] for record in records] == list(range(len(records)))


def test_the_clustermapper_names_the_culprit_while_the_run_goes_on(tmp_path: Path) -> None:
    with started("run", tmp_path, MAPPED) as run, opened(address(run), may_disconnect=True) as page:
        expect(page.locator("#measured")).to_contain_text("24 of 24 link directions measured")
        choose(page, LINK)
        page.get_by_role("button", name="blackhole", exact=True).click()
        truth = page.locator("#truth tbody tr").first
        expect(truth).to_contain_text(f"blackhole of {LINK}")
        expect(truth).to_contain_text(re.compile(rf"{LINK} \(loss \d+%\)"))
        expect(page.locator("#detail tbody tr").first).to_contain_text(re.compile(r"[1-9]\d* of"))
        expect(page.locator("#chips .live")).to_have_text("live")
        page.get_by_role("button", name="heal", exact=True).click()
        expect(page.locator("#log")).to_contain_text(f"Clustermapper no longer accuses {LINK}")
        expect(page.locator("#chips .live")).to_have_text("live")
    records = [json.loads(line) for line in (run_below(tmp_path) / "stream.ndjson").open()]
    findings = [record for record in records if record["type"] == "finding"]
    assert (findings[0]["raised"], findings[0]["suspect"]) == (True, LINK)


TARGETS = {"blackhole": "h0--p1_t0_0", "cut": "p1_t0_0", "loss": "p1_t1_1", "degrade": "p1"}
"""A port, a T0, a T1 and a plane, each with another fault."""


def test_other_faults_strike_other_targets_and_a_killed_run_is_told_of(
    watched: subprocess.Popen[str], tmp_path: Path
) -> None:
    with opened(address(watched), may_disconnect=True) as page:
        expect(page.locator("#chips .live")).to_have_text("live")
        report = page.locator("#report")
        for kind, target in TARGETS.items():
            page.locator(f"svg [data-name='{target}']").focus()
            page.keyboard.press("Enter")
            expect(page.locator("#detail h3")).to_have_text(target)
            page.get_by_role("button", name=kind, exact=True).click()
            expect(report).to_contain_text(f"{kind} of {target}: in effect after")
            expect(report).to_contain_text("proven by")
            expect(page.locator("#truth tr.bad")).to_have_count(1)
            page.get_by_role("button", name="heal", exact=True).click()
            expect(report).to_contain_text("healed after")
            expect(page.locator("#truth tr.bad")).to_have_count(0)
        watched.kill()
        expect(page.locator("#chips .live")).to_have_text("disconnected")
        page.get_by_role("button", name="cut", exact=True).click()
        expect(report).to_contain_text("nobody answers")
    faults = [json.loads(line) for line in (run_below(tmp_path) / "faults.jsonl").open()]
    assert [(fault["kind"], fault["target"]) for fault in faults] == [*TARGETS.items()]


def _server_of(command: int) -> int:
    """The PID of the page's server, a grandchild of the command; 0 if there is none."""
    for watcher in _children(command):
        for child in _children(watcher):
            if _read(child, "comm").strip() == "live":
                return child
    return 0


def _children(pid: int) -> list[int]:
    return [int(child) for child in _read(pid, f"task/{pid}/children").split()]


def _read(pid: int, file: str) -> str:
    """A file of a process; empty if the process has ended, which may be while it is read."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
