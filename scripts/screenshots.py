"""Makes the pictures of the page for the documents: `.venv/bin/python scripts/screenshots.py`.

It simulates link-failure, exports its replay, and has Debian's Chromium show it: it writes
docs/images/live.png, live-dark.png, live-phone.png and docs/replay.html. As root it also emulates
`healthy` with --live, cuts a link with the mouse, and makes docs/images/live.gif of what the page
shows meanwhile.
"""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

PROJECT = Path(__file__).resolve().parents[1]
IMAGES = PROJECT / "docs" / "images"
REPLAY = PROJECT / "docs" / "replay.html"
TESTBED = Path(sys.executable).with_name("testbed")

AFTER_DETECTION_S = 4.4
LINK = "p1_t0_0--p1_t1_1"
LIVE = ("run", "healthy", "--live", "--no-figures", "--set", "topology.dilation=100000")
SETTLED_S = 6.0
FRAME_MS = 300
STEPS = (("look", 4), ("choose", 4), ("cut", 24), ("heal", 14))
"""What is done, and how many frames are made after it."""
GIF_WIDTH = 1000
COLOURS = 96

_SEEK = """t => {
  const slider = document.querySelector(".track input");
  slider.value = t;
  slider.dispatchEvent(new Event("input"));
}"""


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        options = ("--no-figures", "--results", scratch)
        subprocess.run([TESTBED, "simulate", "link-failure", *options], check=True)
        run = Path(scratch) / "link-failure"
        subprocess.run(
            [TESTBED, "replay", run, "--export", REPLAY, "--packets", "h0,h4"], check=True
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox"] if os.geteuid() == 0 else [],
        )
        for name, size, dark in (
            ("live", (1280, 800), False),
            ("live-dark", (1920, 1080), True),
            ("live-phone", (390, 844), False),
        ):
            page = _opened(browser, size, dark=dark)
            _show(page, AFTER_DETECTION_S)
            page.screenshot(path=IMAGES / f"{name}.png")
        if os.geteuid() == 0:
            with _live_run() as address:
                _animate(_opened(browser, (1280, 800), dark=False, url=address))
        browser.close()


@contextmanager
def _live_run() -> Iterator[str]:
    """An emulated run that is watched; yields the address of its page."""
    with tempfile.TemporaryDirectory() as scratch:
        run = subprocess.Popen(
            [TESTBED, *LIVE, "--results", scratch],
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        assert run.stderr is not None  # noqa: S101 - it was asked for
        try:
            yield next(filter(None, map(_address, iter(run.stderr.readline, ""))))
        finally:
            run.send_signal(signal.SIGINT)
            run.communicate()


def _address(line: str) -> str | None:
    found = re.search(r"Watch it live: (\S+)", line)
    return None if found is None else found[1]


def _opened(browser: Browser, size: tuple[int, int], *, dark: bool, url: str | None = None) -> Page:
    """The page of a run, or that of the replay, paused."""
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce" if url is None else "no-preference",
    )
    page = context.new_page()
    page.goto(url or REPLAY.as_uri())
    page.wait_for_selector("svg .node")
    if url is None:
        page.keyboard.press("Space")
    return page


def _click(page: Page, place: Sequence[float]) -> None:
    x, y = place
    page.evaluate(_POINTER, [x, y])
    page.mouse.click(x, y)


def _show(page: Page, t: float) -> None:
    page.evaluate(_SEEK, t)
    page.wait_for_timeout(400)


_POINTER = """([x, y]) => {
  const known = document.querySelector("#pointer");
  const pointer = known ?? document.body.appendChild(document.createElement("div"));
  pointer.id = "pointer";
  pointer.style.cssText = `position: fixed; z-index: 9; left: ${x}px; top: ${y}px; width: 0;
    height: 0; pointer-events: none; border: 9px solid transparent;
    border-left-color: #c00; border-top-color: #c00`;
}"""
"""Screenshots have no mouse pointer: this is a mark in its place."""

_ON_LINK = """name => {
  const path = document.querySelector(`.link[data-name="${name}"] path`);
  const point = path.getPointAtLength(path.getTotalLength() * 0.7);
  const { x, y } = point.matrixTransform(path.getScreenCTM());
  return [x, y];
}"""


def _animate(page: Page) -> None:
    """An animation of a link that is cut and healed by hand, as it happens."""
    page.wait_for_timeout(SETTLED_S * 1000)
    frames = []
    for step, count in STEPS:
        if step == "choose":
            _click(page, page.evaluate(_ON_LINK, LINK))
        elif step != "look":
            box = page.get_by_role("button", name=step, exact=True).bounding_box()
            assert box is not None  # noqa: S101 - it is shown
            _click(page, (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
        for _ in range(count):
            due = time.monotonic() + FRAME_MS / 1000
            picture = Image.open(io.BytesIO(page.screenshot()))
            height = GIF_WIDTH * picture.height // picture.width
            small = picture.resize((GIF_WIDTH, height), Image.Resampling.LANCZOS)
            frames.append(
                small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            )
            page.wait_for_timeout(max(due - time.monotonic(), 0) * 1000)
    first, *others = frames
    first.save(
        IMAGES / "live.gif",
        save_all=True,
        append_images=others,
        duration=FRAME_MS,
        loop=0,
        optimize=True,
    )


if __name__ == "__main__":
    main()
