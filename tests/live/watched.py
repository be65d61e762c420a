"""An emulated run with its page, for the tests that watch it in a browser."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.browser import Page

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


@contextmanager
def started(tmp_path: Path, scenario: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A live run; it is killed at the end of the block."""
    (tmp_path / "watched.yaml").write_text(scenario)
    command: list[str | Path] = [
        TESTBED, "run", "watched.yaml", "--live", "--no-figures", "--results", tmp_path, *options,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def choose(page: Page, name: str) -> None:
    page.locator(f".link[data-name='{name}']").focus()
    page.keyboard.press("Enter")
