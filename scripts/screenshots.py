"""Makes the pictures of the page for the documents: `.venv/bin/python scripts/screenshots.py`.

It simulates link-failure, exports its replay, and has Debian's Chromium show it. What it writes:
docs/images/live.png, live-dark.png, live-phone.png, live.gif and docs/replay.html.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

PROJECT = Path(__file__).resolve().parents[1]
IMAGES = PROJECT / "docs" / "images"
REPLAY = PROJECT / "docs" / "replay.html"
TESTBED = Path(sys.executable).with_name("testbed")

AFTER_DETECTION_S = 4.4
FRAMES_S = [*(3.94 + i / 50 for i in range(22)), 5.5, 7.0, *(7.48 + i / 50 for i in range(8))]
FRAME_MS = 300
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
        _animate(_opened(browser, (1280, 800), dark=False))
        browser.close()


def _opened(browser: Browser, size: tuple[int, int], *, dark: bool) -> Page:
    """The page, paused."""
    scheme = "dark" if dark else "light"
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(REPLAY.as_uri())
    page.wait_for_selector("svg .node")
    page.keyboard.press("Space")
    return page


def _show(page: Page, t: float) -> None:
    page.evaluate(_SEEK, t)
    page.wait_for_timeout(400)


def _animate(page: Page) -> None:
    """An animation of the failure, from before it until the EV has returned."""
    frames = []
    for t in FRAMES_S:
        _show(page, t)
        picture = Image.open(io.BytesIO(page.screenshot()))
        height = GIF_WIDTH * picture.height // picture.width
        small = picture.resize((GIF_WIDTH, height), Image.Resampling.LANCZOS)
        few = small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        frames.append(few)
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
