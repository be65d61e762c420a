"""RDMA programs in two hosts of a live fabric: the example, write_bw and write_lat."""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import ExitStatus
from tests.commands import completed

TESTBED = [sys.executable, "-c", "from testbed.cli import main; main()"]
PROJECT = Path(__file__).parents[2]
HELLO = PROJECT / "examples" / "hello.py"
TINY_RTT_NS = 130_800_000


def run_testbed(*arguments: str, typed: str = "", status: int = 0) -> str:
    called = completed([*TESTBED, *arguments], input=typed)
    assert called.returncode == status, called.stderr
    return called.stdout


def rows(output: str) -> list[dict[str, Any]]:
    (line,) = output.splitlines()
    found: list[dict[str, Any]] = json.loads(line)["rows"]
    return found


@pytest.mark.parametrize("page", ["docs/rdma.md"])
def test_a_page_lists_the_example_as_it_is(page: str) -> None:
    """All of it but its docstring: whoever pastes the listing has a program that runs."""
    listings = re.findall(
        r"^```python\n(.*?)^```", (PROJECT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    docstring = ast.parse(HELLO.read_text()).body[0]
    code = HELLO.read_text().splitlines(keepends=True)[docstring.end_lineno :]
    assert "".join(code).lstrip() in listings


@pytest.mark.root
def test_the_example_of_ten_lines_runs_between_two_hosts() -> None:
    """And write_bw stands beside it, as any program on the path."""
    text = run_testbed(
        "shell",
        "clos-tiny",
        typed=f"h1 python {HELLO} &\nh0 python {HELLO} h1\nh1 wait\n"
        "h1 write_bw &\nh0 write_bw h1 --size 20000 --iters 5 --json\nh1 wait\n"
        f"h0 write_bw h9\nh0 python {HELLO} h8\nh0 write_bw h1 -s 1G -q 16384; echo status $?\n",
        status=ExitStatus.WRONG_INPUT,  # the first line that failed
    )
    assert "h0 RDMA_WRITE success None" in text
    assert "h1 RECV_RDMA_WITH_IMM success 42 b'hello over MRC'" in text
    assert '"size": 20000, "iterations": 5' in text
    assert "SERVER: found h9, expected a host of clos-tiny, such as h1" in text
    assert "error: SERVER: found h8, expected the name of a host of the fabric, such as h1" in text
    assert "16,384 queue pairs with messages of 1 GiB take" in text
    assert "status 3" in text
    assert "Traceback" not in text


@pytest.mark.root
def test_write_lat_measures_the_way_through_a_t1() -> None:
    """Half a base RTT at least. A busy machine adds to it."""
    (row,) = rows(run_testbed("write-lat", "clos-tiny", "--iters", "6", "--json"))
    assert row["iterations"] == 6
    assert row["min_ns"] > TINY_RTT_NS / 2


@pytest.mark.root
def test_write_bw_measures_both_ways_over_several_queue_pairs() -> None:
    """At most what two ports of 10 Mbit/s carry each way."""
    options = ("--size", "32768", "--iters", "12", "--qp", "3", "--bidirectional", "--json")
    (row,) = rows(run_testbed("write-bw", "clos-tiny", *options))
    limit = 2 * 2 * 10e6 / 8
    assert 0 < row["average_bytes_per_s"] < limit
    assert row["peak_bytes_per_s"] >= row["average_bytes_per_s"]


def test_a_program_outside_a_fabric_says_where_it_belongs() -> None:
    program = Path(sys.executable).with_name("write_bw")
    called = completed([program])
    assert called.returncode == 3
    assert "testbed shell" in called.stderr
