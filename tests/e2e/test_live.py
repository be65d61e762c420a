"""An emulated run that is watched, from the command to the end of its stream."""

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import TESTBED, completed
from tests.waiting import WATCHDOG_S

SCENARIO = """
name: watched
topology: {base: clos-tiny, dilation: 100000}
duration: 4 s
workload: {kind: write_bw, pairs: [[h0, h1]], message_size: 64 KiB}
"""
FAULT = {"kind": "blackhole", "target": "p0_t0_0--p0_t1_0"}

pytestmark = [pytest.mark.root, pytest.mark.e2e]


def _records(address: str) -> Iterator[dict[str, Any]]:
    with urllib.request.urlopen(f"{address}events", timeout=WATCHDOG_S) as events:  # noqa: S310 - our own server
        for line in events:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def _ask(address: str, path: str, content: dict[str, str]) -> Any:
    origin = re.match(r"http://[^/]+", address)
    assert origin
    headers = {"Content-Type": "application/json", "Origin": origin[0]}
    request = urllib.request.Request(  # noqa: S310 - our own server
        address + path, json.dumps(content).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=WATCHDOG_S) as answer:  # noqa: S310 - as above
        return json.load(answer)


def test_a_run_is_watched_broken_and_ended(tmp_path: Path) -> None:
    (tmp_path / "watched.yaml").write_text(SCENARIO)
    options = ("--live", "--force", "--no-figures", "--results", tmp_path)
    command: list[str | Path] = [TESTBED, "run", tmp_path / "watched.yaml", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as run:
        assert run.stderr is not None
        address = next(m[0] for line in run.stderr if (m := re.search(r"http://\S+/", line)))
        seen: list[dict[str, Any]] = []
        for record in _records(address):
            seen.append(record)
            states = sum(earlier["type"] == "state" for earlier in seen)
            if record["type"] == "state" and states == 10:
                assert _ask(address, "faults", FAULT)["error"] is None
                owner = completed(["ps", "-C", "live", "-o", "uid="], check=True)
                assert str(os.getuid()) not in owner.stdout.split()
            if record["type"] == "detection":
                _ask(address, "end", {})
        run.communicate(timeout=WATCHDOG_S)
    assert [seen[0]["type"], seen[-1]["type"]] == ["snapshot", "end"]
    phases = [record["phase"] for record in seen if record["type"] == "fault"]
    assert phases[:2] == ["requested", "in effect"]
    (stream,) = tmp_path.glob("watched/2*/stream.ndjson")
    assert [json.loads(line) for line in stream.open()] == seen
