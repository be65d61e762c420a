"""What a person does with the page of an emulated run: cut, heal, look back, fork and end it."""

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from statistics import median

import polars as pl
import pytest

from tests.live.browser import click_link, expect, needs_browser, opened
from tests.live.watched import EV, LINK, address, run_below

pytestmark = [needs_browser, pytest.mark.root]


@pytest.mark.alone  # a fork takes only the CPU time that others leave, so it would wait for them
def test_a_person_cuts_heals_looks_back_forks_and_ends(
    watched: subprocess.Popen[str], tmp_path: Path
) -> None:
    with opened(address(watched), may_be_refused=True, moving=True) as page:
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
        records = [json.loads(line) for line in (run_below(tmp_path) / "stream.ndjson").open()]
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
    watched.wait(300)
    events = pl.read_parquet(run_below(tmp_path) / "ev_events.parquet")
    left = events.filter((pl.col("new") == "ASSUMED_BAD") & ~pl.col("active"))
    assert len(left) > 0
    faults = [json.loads(line) for line in (run_below(tmp_path) / "faults.jsonl").open()]
    assert [fault["kind"] for fault in faults] == ["cut"]
    assert (run_below(tmp_path) / "stream.ndjson").stat().st_size > 0
