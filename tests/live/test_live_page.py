"""The page of a run that goes on, from the command to the click."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.browser import choose, expect, needs_browser, opened
from tests.live.conftest import FAILURE
from tests.live.watched import LINK, address, run_below, started

pytestmark = [needs_browser, pytest.mark.simulated]

HEALTHY = FAILURE[: FAILURE.index("timeline:")]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with started("simulate", tmp_path, HEALTHY) as process:
        yield process


def test_a_click_breaks_a_link_and_the_page_tells_the_detection(
    run: subprocess.Popen[str],
) -> None:
    with opened(address(run)) as page:
        expect(page.locator("#chips .live")).to_have_text("live")
        choose(page, LINK)
        page.get_by_role("button", name="blackhole", exact=True).click()
        detection = page.locator(".tile", has_text="detection")
        expect(detection.locator("strong")).to_contain_text("RTT")
        row = page.locator("#evs tbody tr", has_text="p1/t1_1")
        expect(row.locator(".state")).to_contain_text("assumed bad")
        page.get_by_role("button", name="heal", exact=True).click()
        expect(row.locator(".state")).to_contain_text("active")
        page.reload()
        expect(page.locator("#log .detection")).not_to_have_count(0)
        page.get_by_role("button", name="End run").click()
        expect(page.locator("#chips .live")).to_have_text("replay")
        expect(page.locator("#log li").first).to_contain_text("end of the run")
    assert run.wait(300) == 0


PROGRAM = """
name: watched
topology: clos-tiny
duration: 60 s
workload: {kind: program, command: [sleep, "3600"], endless: true}
"""


def test_a_run_of_programs_without_root_ends_as_others_do(tmp_path: Path) -> None:
    with started("device", tmp_path, PROGRAM) as run:
        with opened(address(run)) as page:
            expect(page.locator("#chips .live")).to_have_text("live")
            choose(page, LINK)
            page.get_by_role("button", name="cut", exact=True).click()
            expect(page.locator("#log .fault")).not_to_have_count(0)
            page.get_by_role("button", name="End run").click()
            expect(page.locator("#chips .live")).to_have_text("replay")
            expect(page.locator("#log li").first).to_contain_text("end of the run")
            expect(page.locator(".tile", has_text="verdict")).not_to_contain_text("so far")
        assert run.wait(300) in {0, 4}
    assert (run_below(tmp_path) / "summary.json").is_file()


def test_an_ev_is_denied_and_a_port_disabled_by_click(run: subprocess.Popen[str]) -> None:
    with opened(address(run)) as page:
        expect(page.locator("#chips .live")).to_have_text("live")
        row = page.locator("#evs tbody tr", has_text="p1/t1_1")
        row.click()
        page.get_by_role("button", name="deny", exact=True).click()
        expect(row.locator(".state")).to_contain_text("denied")
        page.get_by_role("button", name="probe", exact=True).click()
        expect(page.locator("#report")).to_contain_text("p1/t1_1: probe answered after")
        page.get_by_role("button", name="allow", exact=True).click()
        expect(row.locator(".state")).to_contain_text("active")
        page.locator(".link[data-name^='h0--p1']").focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="disable port", exact=True).click()
        expect(row.locator(".state")).to_contain_text("assumed bad")
        page.get_by_role("button", name="enable port", exact=True).click()
        expect(row.locator(".state")).to_contain_text("active")


def test_the_ev_of_one_peer_is_denied_and_not_that_of_another(tmp_path: Path) -> None:
    scenario = HEALTHY
    scenario = scenario.replace("clos-tiny", "{base: clos-tiny, hosts_per_t0: 2}")
    scenario = scenario.replace("pairs: [[h0, h1]]", "pairs: [[h0, h2], [h0, h3]]")
    with started("simulate", tmp_path, scenario) as run, opened(address(run)) as page:
        expect(page.locator("#chips .live")).to_have_text("live")
        row = page.locator("#evs tbody tr", has_text="p1/t1_1")
        page.locator("#flow").select_option(label="h0 → h3")
        row.click()
        expect(page.locator("#detail h3")).to_contain_text("h0 → h3")
        page.get_by_role("button", name="deny", exact=True).click()
        expect(row.locator(".state")).to_contain_text("denied")
        page.locator("#flow").select_option(label="h0 → h2")
        expect(row.locator(".state")).to_contain_text("active")
        page.locator("#flow").select_option(label="h0 → h3")
        page.get_by_role("button", name="allow", exact=True).click()
        expect(row.locator(".state")).to_contain_text("active")


def test_ctrl_c_ends_the_run_and_writes_its_report(run: subprocess.Popen[str]) -> None:
    with opened(address(run)) as page:
        run.send_signal(signal.SIGINT)
        expect(page.locator("#chips .live")).to_have_text("replay")
    out, _ = run.communicate(timeout=300)
    assert run.returncode == 0
    assert "verdict: trusted" in out


def test_a_run_that_is_killed_leaves_a_page_that_says_so(run: subprocess.Popen[str]) -> None:
    with opened(address(run), may_disconnect=True) as page:
        run.kill()
        expect(page.locator("#chips .live")).to_have_text("disconnected")
