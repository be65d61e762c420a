"""The page of an emulated run in a real browser: real packets, slow enough for a person."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

import polars as pl
import pytest

from tests.live.browser import Page, click_link, expect, needs_browser, opened
from tests.live.test_live_page import address
from tests.waiting import wait_until

pytestmark = [needs_browser, pytest.mark.root]

TESTBED = Path(sys.executable).with_name("testbed")
LINK = "p1_t0_0--p1_t1_1"
EV = "p1/t1_1"
SCENARIO = """
name: watched
topology: {base: clos-tiny, dilation: 100000}
duration: 3 s
workload: {kind: write_bw, pairs: [[h0, h1]], message_size: 256 KiB}
"""


MAPPED = SCENARIO + "clustermapper: {period: 10 us}\n"


@pytest.fixture
def run(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    with started(tmp_path, SCENARIO) as process:
        yield process


@contextmanager
def started(tmp_path: Path, scenario: str, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """A live run; it is killed at the end of the block."""
    (tmp_path / "watched.yaml").write_text(scenario)
    command: list[str | Path] = [
        TESTBED, "run", "watched.yaml", "--live", "--no-figures", "--results", tmp_path, *options,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "watched" / "latest"


def choose(page: Page, name: str) -> None:
    page.locator(f".link[data-name='{name}']").focus()
    page.keyboard.press("Enter")


@pytest.mark.alone  # a fork takes only the CPU time that others leave, so it would wait for them
def test_a_person_cuts_heals_looks_back_forks_and_ends(
    run: "subprocess.Popen[str]", directory: Path
) -> None:
    with opened(address(run), may_be_refused=True, moving=True) as page:
        expect(page.locator("#chips .live")).to_have_text("live")
        click_link(page, LINK, shift=True)
        report = page.locator("#report")
        expect(report).to_contain_text("in effect after")
        expect(report).to_contain_text("no carrier at both ends, read back")
        expect(report).to_contain_text("detected after")
        row = page.locator("#evs tbody tr", has_text=EV)
        expect(row.locator(".state")).to_contain_text("assumed bad")
        expect(page.locator("#truth tbody tr")).to_contain_text("RTT")
        expect(page.locator(".packets circle")).not_to_have_count(0)
        records = [json.loads(line) for line in (directory / "stream.ndjson").open()]
        states = [record for record in records if record["type"] == "state"]
        loads = [r["t"] for r in states if any("load" in of for of in r["links"].values())]
        gaps = [later - earlier for earlier, later in pairwise(loads)]
        assert median(gaps) < 5, "four samples a second, where the machine keeps up"
        click_link(page, LINK)
        expect(page.locator("#detail h3")).to_have_text(LINK)
        page.get_by_role("button", name="cut", exact=True).click()
        expect(report).to_contain_text("fault 0 is in force")
        page.get_by_role("button", name="heal", exact=True).click()
        expect(report).to_contain_text("healed after")
        expect(row.locator(".state")).to_contain_text("active")

        page.reload()
        page.wait_for_selector("#log .detection")
        page.locator("#log .detection button").first.click()
        page.keyboard.press("Space")
        expect(row.locator(".state")).to_contain_text("assumed bad")
        page.get_by_role("button", name="Fork …").click()
        page.get_by_label("What is changed").select_option(label=f"the cut of {LINK} is healed")
        page.get_by_role("button", name="Simulate", exact=True).click()
        expect(page.locator("#fork section")).to_contain_text("Look at the fork")
        expect(page.locator("#fork section")).to_contain_text("differs from the emulated run")
        page.get_by_role("button", name="Close").click()
        with page.expect_download() as saving:
            page.get_by_role("button", name="Save scenario").click()
        saved = Path(saving.value.path()).read_text()
        assert re.search(rf"kind: cut\n\s+target:\n\s+- {LINK}", saved)
        page.keyboard.press("l")
        page.get_by_role("button", name="End run").click()
        expect(page.locator("#chips .live")).to_have_text("replay")
    run.wait(300)
    events = pl.read_parquet(directory / "ev_events.parquet")
    left = events.filter((pl.col("new") == "ASSUMED_BAD") & ~pl.col("active"))
    assert len(left) > 0
    faults = [json.loads(line) for line in (directory / "faults.jsonl").open()]
    assert [fault["kind"] for fault in faults] == ["cut"]
    assert (directory / "stream.ndjson").stat().st_size > 0


def test_a_server_that_is_killed_comes_back_and_the_page_goes_on(
    run: "subprocess.Popen[str]", directory: Path
) -> None:
    with opened(address(run), may_disconnect=True) as page:
        expect(page.locator("#chips .live")).to_have_text("live")
        server = _server_of(run.pid)
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: _server_of(run.pid) not in {0, server}, "another server")
        expect(page.locator("#chips .live")).to_have_text("live")
        choose(page, LINK)
        page.get_by_role("button", name="blackhole", exact=True).click()
        expect(page.locator("#report")).to_contain_text("detected after")
    records = [json.loads(line) for line in (directory / "stream.ndjson").open()]
    assert [record["id"] for record in records] == list(range(len(records)))


def test_the_clustermapper_names_the_culprit_while_the_run_goes_on(
    tmp_path: Path, directory: Path
) -> None:
    with started(tmp_path, MAPPED) as run, opened(address(run), may_disconnect=True) as page:
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
    records = [json.loads(line) for line in (directory / "stream.ndjson").open()]
    findings = [record for record in records if record["type"] == "finding"]
    assert (findings[0]["raised"], findings[0]["suspect"]) == (True, LINK)


TARGETS = {"blackhole": "h0--p1_t0_0", "cut": "p1_t0_0", "loss": "p1_t1_1", "degrade": "p1"}
"""A port, a T0, a T1 and a plane, each with another fault."""


def test_other_faults_strike_other_targets_and_a_killed_run_is_told_of(
    run: "subprocess.Popen[str]", directory: Path
) -> None:
    with opened(address(run), may_disconnect=True) as page:
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
        run.kill()
        expect(page.locator("#chips .live")).to_have_text("disconnected")
        page.get_by_role("button", name="cut", exact=True).click()
        expect(report).to_contain_text("nobody answers")
    faults = [json.loads(line) for line in (directory / "faults.jsonl").open()]
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
