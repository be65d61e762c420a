"""The page in a real browser, as one file without a server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.live.page import PAGE, exported
from testbed.live.stream.recorded import recorded_stream
from testbed.model.files.scenarios import load_scenario
from testbed.runs.making import simulate_into
from tests.live.browser import Page, expect, needs_browser, opened

pytestmark = [needs_browser, pytest.mark.programs]

BROKEN = "p0_t0_0--p0_t1_0"


@pytest.fixture(scope="module")
def file(failure: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "failure.html"
    file.write_text(exported(recorded_stream(failure), "failure"), encoding="utf-8")
    return file


@pytest.fixture
def page(file: Path) -> Iterator[Page]:
    with opened(file.as_uri(), offline=True) as page:
        page.keyboard.press("Space")
        yield page


_PLACES = "all => all.map(one => [one.getAttribute('cx'), one.getAttribute('cy')].join()).join()"
"""Where circles are."""

_OTHER_PLACES = (
    f"last => ({_PLACES})([...document.querySelectorAll('.packets circle:not(.lost)')]) !== last"
)
"""Whether they are elsewhere than last time."""


def seek(page: Page, t: float) -> None:
    """Move to a time, and wait until the page has drawn it: it draws once a frame."""
    page.locator(".track input").evaluate(
        "(slider, t) => { slider.value = t; slider.dispatchEvent(new Event('input')); }", t
    )
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def link(page: Page, name: str) -> str | None:
    return page.locator(f".link[data-name='{name}']").get_attribute("aria-label")


def test_a_fault_is_seen_where_and_when_it_is_in_force(page: Page) -> None:
    for t, state in ((0.9, "in order"), (1.5, "blackhole"), (2.5, "in order")):
        seek(page, t)
        expect(page.locator(f".link[data-name='{BROKEN}']")).to_have_attribute(
            "aria-label", re.compile(f": {state}")
        )


def test_an_ev_leaves_the_active_set_and_comes_back(page: Page) -> None:
    row = page.locator("#evs tbody tr", has_text="p0/t1_0")
    for t, state in ((0.9, "active"), (1.9, "assumed bad"), (2.95, "active"), (1.9, "assumed bad")):
        seek(page, t)
        expect(row.locator(".state")).to_contain_text(state)


def test_an_ev_shows_its_path_and_its_addresses(page: Page) -> None:
    page.get_by_role("button", name="p1/t1_1").first.hover()
    expect(page.locator(".link.on-path")).to_have_count(4)
    page.get_by_role("button", name="p1/t1_1").first.click()
    addresses = page.locator("#detail tbody code")
    expect(addresses).to_have_count(8)
    expect(addresses.first).to_have_text(re.compile("^5f00:"))


def test_the_log_tells_of_detection_and_leads_there(page: Page) -> None:
    seek(page, 2.9)
    page.locator("#log .detection button").first.click()
    expect(page.locator(".tile", has_text="detection").locator("strong")).to_contain_text("RTT")
    expect(page.locator("output")).to_contain_text("1.")


def test_everything_by_keyboard(page: Page) -> None:
    page.keyboard.press("Home")
    page.keyboard.press("n")  # the fault
    expect(page.locator("#log li")).not_to_have_count(0)
    page.locator("svg [tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#detail h3")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#detail h3")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).not_to_be_visible()


def test_times_are_shown_in_the_chosen_unit(page: Page) -> None:
    seek(page, 1.5)
    expect(page.locator("output")).to_contain_text("1.50 s")
    page.get_by_label("Unit of time").select_option("rtt")
    expect(page.locator("output")).to_contain_text("RTT")
    page.get_by_label("Unit of time").select_option("real")
    expect(page.locator("output")).to_contain_text("150 µs")


def test_packets_move_and_lost_ones_stay(failure: Path, tmp_path: Path) -> None:
    file = tmp_path / "slow.html"
    file.write_text(exported(recorded_stream(failure, "h0,h1"), "slow"), encoding="utf-8")
    with opened(file.as_uri(), offline=True) as page:
        page.keyboard.press("Space")
        places = ""
        for t in (1.04, 1.06, 1.08):
            seek(page, t)
            expect(page.locator(".packets circle.lost")).not_to_have_count(0)
            flying = page.locator(".packets circle:not(.lost)")
            expect(flying).not_to_have_count(0)
            page.wait_for_function(_OTHER_PLACES, arg=places)  # fails if they stay
            places = flying.evaluate_all(_PLACES)


NODES = """
name: nodes
topology: {base: clos-rails, planes: 1, nics_per_node: 2}
duration: 8 RTT
workload: {kind: allreduce, hosts: [h2, h4], size: 64 KiB}
timeline:
  - {kind: cut, target: n1, at: 2 RTT, for: 2 RTT}
"""


def test_nodes_are_around_their_hosts_and_can_be_chosen(tmp_path: Path) -> None:
    scenario, run = tmp_path / "nodes.yaml", tmp_path / "run"
    scenario.write_text(NODES)
    run.mkdir()
    simulate_into(run, load_scenario(str(scenario)))
    file = tmp_path / "page.html"
    file.write_text(exported(recorded_stream(run), "nodes"), encoding="utf-8")
    with opened(file.as_uri(), offline=True) as page:
        expect(page.locator(".band.machine")).to_have_count(8)
        node = page.locator(".band.machine[data-name='n1']")
        expect(node).to_have_attribute("aria-label", "node n1")
        node.locator("text").click()
        expect(page.locator("#detail h3")).to_have_text("n1")
        rows = page.locator("#detail tbody tr td:first-child")
        expect(rows).to_have_text(["h2 → p0_t0_0", "p0_t0_0 → h2", "h3 → p0_t0_1", "p0_t0_1 → h3"])


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_page_is_never_wider_than_the_window(file: Path, width: int) -> None:
    with opened(file.as_uri(), width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_every_vendored_file_is_listed() -> None:
    listed = (PAGE / "vendor" / "README.md").read_text()
    for file in (PAGE / "vendor").iterdir():
        assert file.name == "README.md" or f"`{file.name}`" in listed
