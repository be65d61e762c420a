"""A fabric with a prompt, watched in a real browser: what is typed, and what is clicked."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import TESTBED
from tests.live.browser import expect, needs_browser, opened
from tests.live.watched import address
from tests.waiting import wait_until

pytestmark = [needs_browser, pytest.mark.root, pytest.mark.long]

LINK = "p1_t0_0--p1_t1_1"
TINY = Path(__file__).parents[2] / "topologies/clos-tiny.yaml"


def slow(topology: str) -> str:
    """A topology at a dilation at which a person can follow it."""
    lines = [line for line in topology.splitlines() if not line.startswith("dilation:")]
    return "\n".join([*lines, "dilation: 100000", ""])


class Prompt:
    """A shell whose lines a test types."""

    def __init__(self, directory: Path) -> None:
        (directory / "slow.yaml").write_text(slow(TINY.read_text()))
        self.printed = directory / "printed.txt"
        self.process = subprocess.Popen(
            [TESTBED, "shell", "slow.yaml", "--live", "--results", directory],
            stdin=subprocess.PIPE,
            stdout=self.printed.open("w"),
            stderr=subprocess.PIPE,
            text=True,
            cwd=directory,
        )

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def prints(self, pattern: str) -> None:
        wait_until(lambda: re.search(pattern, self.printed.read_text()) is not None, pattern)

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(300)


@pytest.fixture
def prompt(tmp_path: Path) -> Iterator[Prompt]:
    prompt = Prompt(tmp_path)
    yield prompt
    prompt.process.kill()
    prompt.process.wait()


def test_programs_faults_evs_and_ports_from_the_prompt_and_the_page(
    prompt: Prompt, tmp_path: Path
) -> None:
    with opened(address(prompt.process), may_be_refused=True, moving=True) as page:
        expect(page.locator("#chips .live")).to_have_text("live")
        expect(page.locator("#evs")).to_contain_text("No flow yet")
        expect(page.get_by_role("button", name="End run")).to_be_hidden()
        expect(page.get_by_role("button", name="Fork …")).to_be_hidden()
        prompt.type("h1 write_bw &")
        prompt.type("h0 write_bw h1 -n 1000000 &")
        expect(page.locator("#flow option")).to_have_text("h0 → h1")
        row = page.locator("#evs tbody tr", has_text="p1/t1_1")
        expect(row.locator(".state")).to_contain_text("active")
        expect(row.locator(".rtt")).to_contain_text("s")
        expect(row.locator(".goodput")).to_contain_text("bit/s")
        expect(page.locator("#fabric .packets circle.data").first).to_be_attached()
        expect(page.locator("#fabric .packets circle.sack").first).to_be_attached()

        prompt.type(f"fault inject blackhole {LINK}")
        expect(page.locator("#truth tbody tr").first).to_contain_text(f"blackhole of {LINK}")
        expect(page.locator("#log")).to_contain_text("detected after")
        expect(row.locator(".state")).to_contain_text("assumed bad")
        page.locator(f".link[data-name='{LINK}']").focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="heal", exact=True).click()
        expect(page.locator("#report")).to_contain_text("healed after")
        expect(row.locator(".state")).to_contain_text("active")
        prompt.type("fault list")
        prompt.prints(rf"blackhole of {LINK}: healed")

        row.click()
        page.get_by_role("button", name="deny", exact=True).click()
        expect(row.locator(".state")).to_contain_text("denied")
        prompt.type("ev allow h0-h1 p1/t1_1")
        expect(row.locator(".state")).to_contain_text("active")
        prompt.type("port disable h0 1")
        expect(row.locator(".state")).to_contain_text("assumed bad")
        prompt.type("port enable h0 1")
        expect(row.locator(".state")).to_contain_text("active")

        prompt.type("link p1_t0_0 p1_t1_1 down")
        expect(page.locator("#truth tbody tr").first).to_contain_text(f"cut of {LINK}")
        prompt.type("link p1_t0_0 p1_t1_1 up")
        expect(page.locator("#truth tr.bad")).to_have_count(0)

        prompt.type("h0 pkill write_bw")
        expect(page.locator("#flow option")).to_have_text("h0 → h1 (ended)")
        expect(row.locator(".state")).to_contain_text("ended")
        assert prompt.end() == 0
        expect(page.locator("#chips .live")).to_have_text("replay")
    check_stream(tmp_path / "shell/latest/stream.ndjson")
    check_replay(tmp_path)


def check_stream(stream: Path) -> None:
    records = [json.loads(line) for line in stream.open()]
    assert [record["id"] for record in records] == list(range(len(records)))
    faults = [(r["kind"], r["phase"]) for r in records if r["type"] == "fault"]
    phases = "requested", "in effect", "healed"
    assert faults == [(kind, phase) for kind in ("blackhole", "cut") for phase in phases]
    commands = {(r["kind"], r["by"]) for r in records if r["type"] == "operator"}
    assert {kind for kind, _ in commands} == {"deny", "allow", "disable", "enable"}
    packets = [packet for r in records if r["type"] == "packets" for packet in r["packets"]]
    fates = {(kind, fate) for _, _, _, _, fate, _, kind, _ in packets}
    assert fates >= {("data", "arrived"), ("data", "lost"), ("sack", "arrived")}
    assert fates >= {("probe", "lost"), ("probe", "arrived"), ("answer", "arrived")}
    assert [r["flows"] for r in records if r["type"] == "ended"] == [[0]]
    assert records[-1]["outcome"] == "the prompt has ended"


def check_replay(tmp_path: Path) -> None:
    exported = tmp_path / "shell.html"
    replay: list[str | Path] = [TESTBED, "replay", tmp_path / "shell", "--export", exported]
    subprocess.run(replay, check=True, cwd=tmp_path)
    with opened(exported.as_uri(), offline=True) as page:
        page.keyboard.press("End")
        expect(page.locator("#truth tbody tr")).to_have_count(2)
        expect(page.locator("#flow option")).to_have_text("h0 → h1 (ended)")
