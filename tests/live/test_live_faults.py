"""Every fault on every kind of target by the page's buttons, and what is refused.

All tests share one run, which goes on meanwhile; each heals what it has broken.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.model.errors import InputError
from testbed.model.files.scenarios import load_fault
from testbed.model.files.topologies import load_topology
from tests.live.browser import Page, Route, choose, expect, needs_browser, opened
from tests.live.test_live_page import HEALTHY
from tests.live.watched import address, started

pytestmark = [needs_browser, pytest.mark.simulated, pytest.mark.long]

TARGETS = {
    "link": "p1_t0_0--p1_t1_1",
    "port": "h0--p1_t0_0",
    "T0": "p1_t0_0",
    "T1": "p1_t1_1",
    "plane": "p1",
}
KINDS = ("cut", "blackhole", "flap", "loss", "corrupt", "degrade", "delay")
MOST_KEYS = 80


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with (
        started("simulate", tmp_path_factory.mktemp("faults"), HEALTHY) as run,
        opened(address(run), may_be_refused=True, may_disconnect=True) as page,
    ):
        expect(page.locator("#chips .live")).to_have_text("live")
        yield page


@pytest.fixture(autouse=True)
def nothing_chosen(page: Page) -> None:
    page.keyboard.press("Escape")


def press(page: Page, button: str) -> None:
    page.get_by_role("button", name=button, exact=True).click()


def shows(page: Page, selector: str, text: str) -> None:
    """Wait for a text, a frame at a time: `expect` looks once in a second after a while."""
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)",
        arg=[selector, text],
    )


def heal(page: Page) -> None:
    """Heal what is broken, once the page has heard of it."""
    page.wait_for_selector("#truth tr.bad:first-child")
    press(page, "heal")
    shows(page, "#report", "healed after")
    page.wait_for_function("() => document.querySelector('#truth tr.bad') === null")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_fault_takes_effect_and_heals(page: Page, target: str) -> None:
    """All kinds on a link; elsewhere one that stops packets, and one that takes a value."""
    choose(page, target)
    for kind in KINDS:
        expect(page.get_by_role("button", name=kind, exact=True)).to_be_enabled()
    for kind in KINDS if target == TARGETS["link"] else ("cut", "degrade"):
        press(page, kind)
        shows(page, "#report", f"{kind} of {target}: in effect")
        shows(page, "#truth tbody tr", f"{kind} of {target}")
        heal(page)


def test_a_fault_is_made_and_healed_by_keys_alone(page: Page) -> None:
    def tab_to(selector: str) -> None:
        for _ in range(MOST_KEYS):
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"no {selector} by the tab key")

    page.evaluate("document.activeElement.blur()")
    tab_to("svg g")
    for _ in range(MOST_KEYS):
        if page.evaluate("document.activeElement.matches('.link')"):
            break
        page.keyboard.press("ArrowUp")
    name = page.evaluate("document.activeElement.dataset.name")
    assert "--" in name
    page.keyboard.press("Enter")
    tab_to(f"button[title='cut {name}']")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("#report")).to_contain_text(f"cut of {name}: in effect")
    expect(page.locator("#truth tbody tr").first).to_have_class("bad")
    tab_to("button.heal")
    page.keyboard.press("Space")
    expect(page.locator("#report")).to_contain_text("healed after")


def test_two_faults_on_a_link_add_up_unless_they_are_of_one_kind(page: Page) -> None:
    choose(page, TARGETS["link"])
    for kind in ("blackhole", "cut"):
        press(page, kind)
        shows(page, "#report", f"{kind} of {TARGETS['link']}: in effect")
    page.wait_for_selector("#truth tr.bad:nth-child(2)")
    press(page, "cut")
    shows(page, "#report.failed", "no other cut there")
    heal(page)


@pytest.mark.parametrize(
    "changed",
    [{"target": "p9"}, {"target": "h0--h1"}, {"probability": 2}, {"kind": "burn"}],
    ids=["plane", "link", "value", "kind"],
)
def test_a_refusal_has_the_words_of_the_command_line(page: Page, changed: dict[str, Any]) -> None:
    """The buttons ask for nothing wrong, so the request is changed on its way."""
    sent: list[str] = []

    def change(route: Route) -> None:
        sent.append(json.dumps(json.loads(route.request.post_data or "") | changed))
        route.continue_(post_data=sent[0])

    choose(page, TARGETS["link"])
    page.route("**/faults", change)
    press(page, "loss")
    expect(page.locator("#report.failed")).to_contain_text("expected")
    page.unroute("**/faults")
    with pytest.raises(InputError) as refused:
        load_fault(sent[0], load_topology("clos-tiny"))
    for problem in refused.value.problems:
        for words in (problem.where, problem.found, problem.expected, problem.remedy):
            expect(page.locator("#report")).to_contain_text(words)


def test_of_a_run_that_is_over_the_page_says_so(page: Page) -> None:
    """The last test: it ends the run."""
    choose(page, TARGETS["link"])
    press(page, "End run")
    expect(page.locator("#chips .live")).to_have_text("replay")
    press(page, "cut")
    expect(page.locator("#report.failed")).to_contain_text(
        "expected the directory of a run that is under way (testbed run, device, shell)"
    )
