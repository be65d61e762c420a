"""A browser without a window, for tests of the page: Debian's Chromium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("playwright", reason="no playwright: the group browser is left out")

from playwright.sync_api import ConsoleMessage, Page, Route, expect, sync_playwright

from tests.judging import skip_without
from tests.waiting import WATCHDOG_S

__all__ = ["Page", "Route", "expect", "needs_browser", "opened"]

CHROMIUM = shutil.which("chromium")

PATIENCE_MS = round(WATCHDOG_S * 1000)
"""How long a test waits for what the page shall show: no test is about the machine's speed."""

expect.set_options(timeout=PATIENCE_MS)

needs_browser = skip_without("chromium")


@contextmanager
def opened(
    url: str,
    width: int = 1280,
    *,
    offline: bool = False,
    may_disconnect: bool = False,
    may_be_refused: bool = False,
    moving: bool = False,
) -> Iterator[Page]:
    """Open a page; fail if it reports an error other than one that is to be expected.

    Without `moving` as for somebody who has asked for reduced motion: packets do not move.
    """
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    errors: list[str] = []

    def report(line: ConsoleMessage) -> None:
        gone = may_disconnect and "net::ERR" in line.text
        refused = may_be_refused and "status of 4" in line.text
        if line.type == "error" and not (gone or refused):
            errors.append(line.text)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=as_root)
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            offline=offline,
            reduced_motion="no-preference" if moving else "reduce",
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", report)
        page.goto(url)
        page.wait_for_selector("svg .node")
        yield page
        browser.close()
    assert errors == []


def click_link(page: Page, link: str, *, shift: bool = False) -> None:
    """Click a link with the mouse, nearer to its upper end, where no other lies over it."""
    x, y = page.evaluate(
        """name => {
          const path = document.querySelector(`.link[data-name="${name}"] path`);
          const point = path.getPointAtLength(path.getTotalLength() * 0.7);
          const { x, y } = point.matrixTransform(path.getScreenCTM());
          return [x, y];
        }""",
        link,
    )
    if shift:
        page.keyboard.down("Shift")
    page.mouse.click(x, y)
    if shift:
        page.keyboard.up("Shift")


def choose(page: Page, name: str) -> None:
    """Choose a link, a switch or a host with the keyboard: the page shows it beside the fabric."""
    page.locator(f"svg [data-name='{name}']").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#detail h3")).to_have_text(name)
