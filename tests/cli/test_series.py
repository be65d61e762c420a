"""Several runs by one command: simulated, broken off, continued, compared."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.model.errors import ExitStatus, InputError
from testbed.model.files.scenarios import load_scenario
from testbed.model.run_files.layout import SUMMARY
from testbed.results.run_directory import is_locked
from testbed.runs.series import load_series
from tests.commands import TESTBED
from tests.waiting import WATCHDOG_S, wait_until

from .conftest import Call

pytestmark = pytest.mark.simulated

TINY = """\
name: tiny
topology: clos-tiny
duration: 300 ms
workload: {pairs: [[h0, h1]], message_size: 16 KiB}
"""

LATER = "neither report nor figures: testbed compare here -o REPORT makes them"


def _start(directory: Path, *options: str) -> subprocess.Popen[str]:
    """A series in a process of its own; so is each of its runs."""
    (directory / "tiny.yaml").write_text(TINY)
    return subprocess.Popen(
        [TESTBED, "simulate", "tiny.yaml", "--into", "here", "--no-figures", *options],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )


def _refused(call: Call, *options: str) -> str:
    """What is said of a series that would go where another one is."""
    called = call("simulate", "tiny.yaml", "--into", "here", *options)
    assert called.status == ExitStatus.WRONG_INPUT
    return called.err


def test_a_series_that_is_broken_off_goes_on_where_it_was(tmp_path: Path, call: Call) -> None:
    seeds = list(range(5, 13))  # so many that a busy machine sees the first while others are left
    options = ("--repeat", str(len(seeds)), "--seed", "5", "--set", "transport.evs=4")
    process = _start(tmp_path, *options)
    index = tmp_path / "here/sweep.json"
    wait_until(lambda: index.is_file() and json.loads(index.read_text())["done"])
    process.terminate()
    _, err = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == 143, err
    assert "the same command with --into here makes the remaining runs" in err
    done = json.loads(index.read_text())["done"]
    assert 1 <= len(done) < len(seeds)
    whole = [run["run"] for run in done]
    assert sorted(str(p.relative_to(tmp_path / "here")) for p in _runs(tmp_path)) == sorted(whole)

    again = _start(tmp_path, *options)
    out, err = again.communicate(timeout=WATCHDOG_S)
    assert again.returncode == 0, err
    done = json.loads(index.read_text())["done"]
    assert [run["seed"] for run in done] == seeds
    assert {*whole} <= {run["run"] for run in done}
    assert f"run {len(whole) + 1}/{len(seeds)} (" in err
    assert LATER in out
    assert "12, 11, 10" not in out
    manifest = json.loads((_runs(tmp_path)[0] / "manifest.json").read_text())
    assert manifest["scenario"]["transport"]["evs"] == 4
    assert call("compare", "here", "-o", "report.html").status == 0
    report = Path("report.html").read_text()
    assert all(f'<td class="n">{seed}</td>' in report for seed in seeds)

    message = _refused(call, "--repeat", "4", "--seed", "5")
    assert "--into: found here, expected the series that it holds (different here: se" in message


def test_a_series_that_is_killed_leaves_no_process_and_no_half_run(tmp_path: Path) -> None:
    options = ("--repeat", "3")
    process = _start(tmp_path, *options)
    wait_until(lambda: _runs(tmp_path))
    process.kill()
    process.communicate(timeout=WATCHDOG_S)
    wait_until(lambda: not any(is_locked(run) for run in _runs(tmp_path)))
    finished = [run for run in _runs(tmp_path) if (run / SUMMARY).is_file()]

    out, err = _start(tmp_path, *options).communicate(timeout=WATCHDOG_S)
    assert LATER in out, err
    done = json.loads((tmp_path / "here/sweep.json").read_text())["done"]
    assert [run["seed"] for run in done] == [1, 2, 3]
    assert sorted(tmp_path / "here" / run["run"] for run in done) == _runs(tmp_path)
    assert {*finished} <= {*_runs(tmp_path)}


def test_a_sweep_is_made_compared_and_not_mixed_with_another_scenario(
    tmp_path: Path, call: Call
) -> None:
    options = ("--sweep", "transport.evs=2,4", "--repeat", "2")
    _, err = _start(tmp_path, *options).communicate(timeout=WATCHDOG_S)
    plan, done = json.loads((tmp_path / "here/sweep.json").read_text()).values()
    swept = {case["number"]: case["settings"] for case in plan["cases"]}
    assert [*swept.values()] == [{"transport.evs": 2}, {"transport.evs": 4}], err
    made = [(swept[one["case"]]["transport.evs"], one["seed"]) for one in done]
    assert made == [(2, 1), (4, 1), (2, 2), (4, 2)]
    for one in done:
        scenario = json.loads((tmp_path / "here" / one["run"] / "manifest.json").read_text())
        evs = swept[one["case"]]["transport.evs"]
        assert scenario["scenario"]["transport"]["evs"] == evs

    message = json.loads(call("compare", "here", "--json").out)
    assert message["groups"] == ["transport.evs=2", "transport.evs=4"]
    (goodput,) = (row for row in message["rows"] if row["name"] == "goodput of all flows")
    values, differences = (
        [cell[key] for cell in goodput["cells"]] for key in ("value", "difference")
    )
    assert all(value["low"] <= value["median"] <= value["high"] for value in values)
    assert [(cell["measured"], cell["runs"]) for cell in goodput["cells"]] == [(2, 2)] * 2
    assert [(run["seed"], run["verdict"]) for run in message["runs"]] == [
        (seed, "trusted") for _ in range(2) for seed in (1, 2)
    ]
    assert [value["count"] for value in values] == [2, 2]
    assert differences[0] is None
    assert differences[1]["count"] == 2
    report = (tmp_path / "results/comparison/report.html").read_text()
    assert "range of 2" in report
    assert "confidence interval, or" not in report
    assert (tmp_path / "results/comparison/figures/comparison-goodput.svg").is_file()

    out = call("compare", "here", "--label", "both").out
    assert "both: transport.evs=2" in out
    assert "(low to high): the range; an interval needs 6 runs or more" in out
    assert "*" not in out

    Path("tiny.yaml").write_text(TINY.replace("16 KiB", "32 KiB"))
    content = "expected the series that it holds (different here: content)"
    assert content in _refused(call, *options)
    assert len(json.loads((tmp_path / "here/sweep.json").read_text())["done"]) == 4


def test_what_cannot_be_compared_is_told(call: Call) -> None:
    Path("empty").mkdir()
    called = call("compare", "empty")
    assert called.status == ExitStatus.WRONG_INPUT
    assert "the directory of a run" in called.err


EXPECTING = f"""\
{TINY.replace("name: tiny", "name: other").replace("300 ms", "400 ms")}\
transport: {{kind: mrc, evs: 4, qps: 2}}
expect: {{flows: {{packets_sent: {{at_most: 1}}}}}}
"""


def test_several_scenarios_and_transports_are_compared_by_one_command(call: Call) -> None:
    Path("tiny.yaml").write_text(TINY)
    Path("other.yaml").write_text(EXPECTING)
    swept = ("--sweep", "transport.kind=mrc,roce", "--sweep", "transport.window=1,2")
    called = call("simulate", "tiny.yaml", "other.yaml", *swept, "--no-figures", "--into", "here")
    assert called.status == ExitStatus.FAILED, called.err
    plan = json.loads(Path("here/sweep.json").read_text())["plan"]
    assert [case["name"] for case in plan["cases"]] == [
        f"{name}, transport.kind={transport}"
        for name in ("tiny", "other")
        for transport in ("mrc, transport.window=1", "mrc, transport.window=2", "roce")
    ]
    for case in ("mrc,_transport.window=2", "roce"):
        (run,) = Path("here").glob(f"?-other,_transport.kind={case}/2*")
        transport = json.loads((run / "manifest.json").read_text())["scenario"]["transport"]
        assert transport["qps"] == 2
        assert transport.get("evs") == (4 if case != "roce" else None)

    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in called.out.splitlines()]
    roce = "other, transport.kind=roce"
    assert [roce, "1", "trusted (simulated)", "1 of 1 missed", "intact"] in rows
    assert ["tiny, transport.kind=roce", "1", "trusted (simulated)", "none", "intact"] in rows
    missed = f"{roce}, seed 1: missed flows: packets_sent at most 1: "
    assert missed in called.out
    assert call("compare", "here", "-o", "report").status == 0
    report = Path("report.html").read_text()
    assert "packets_sent at most 1: " in report


def _runs(directory: Path) -> list[Path]:
    return sorted((directory / "here/1-tiny").glob("2*"))


def test_a_path_that_does_not_exist_is_told_those_that_do(call: Call) -> None:
    called = call("simulate", "link-failure", "--set", "timeline.0.at=4 s")
    assert called.status == 2
    assert "has, such as timeline[0], timeline[0].kind, timeline[0].target, " in called.err
    assert "remedy: did you mean timeline[0].at?" in called.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "transport.evz=4"), "--set: transport.evz: found the unknown key evz"),
        (("--set", "topologyy.planes=2"), "--set: topologyy: found the unknown key topologyy"),
        (("--set", "transport.evs=none"), "--set: transport.evs: found none, expected a whole"),
        (("--set", "transport"), "--set: found transport, expected KEY=VALUE"),
        (("--set", "timeline[3].at=4 s"), "--set: found timeline[3].at, expected the path of an"),
        (("--set", "workload.pairs.0=1"), "did you mean workload.pairs[0]?"),
        (("--set", "workload..x=1"), "--set: found workload..x, expected the path of a key"),
        (("--sweep", "topology.planes=1,9"), "--sweep: topology.planes: found 9, expected at most"),
        (("--sweep", "transport.evz=4,8"), "--sweep: transport.evz: found the unknown key evz"),
        (("--sweep", "timeline[3].at=4 s"), "--sweep: found timeline[3].at, expected the path"),
        (("--set", "seed=-1", "--sweep", "transport.evs=1,2"), "--set: seed: found -1, expected"),
        (("--repeat", "2", "--into", "full"), "--into: found full, expected an empty directory"),
        (("--repeat", "2", "--seed", str(2**31 - 1)), "--seed: found 2147483648, expected"),
        (("--label", "x"), "--label: found a single run, expected a series"),
        (("--repeat", "2", "--label", "x", "--label", "y"), "--label: found 2 names, expected one"),
        (("tiny.yaml", "--label", "x", "--label", "x"), "--label: found x, x, expected different"),
        (("tiny.yaml",), "SCENARIO: found two named tiny, expected one"),
        (("--sweep", "transport.kind=mrc,roce", "--set", "transport.rto_min=1 s"), "--set: found"),
        (("--sweep", "transport.kind=mrc,roce", "--set", "transport.evz=1"), "the unknown key evz"),
    ],
)
def test_wrong_options_are_told_before_anything_is_run(
    call: Call, options: tuple[str, ...], message: str
) -> None:
    Path("tiny.yaml").write_text(TINY)
    Path("full").mkdir()
    Path("full/file").touch()
    called = call("simulate", "tiny.yaml", *options)
    assert called.status == 2
    assert message in called.err
    assert sorted(path.name for path in Path().iterdir()) == ["full", "tiny.yaml"]


def test_a_key_is_set_wherever_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    fault = "{kind: cut, target: h0--p0_t0_0, at: 100 ms, for: 100 ms}"
    file.write_text(f"{TINY}timeline:\n  - {fault}\n")
    settings = {
        "timeline[0].for": "50 ms",
        "topology.t1_per_plane": 3,
        "topology.queue.last_hop.limit": "2 BDP",
        "seed": 9,
    }
    scenario = load_scenario(str(file), settings=settings)
    assert scenario.timeline[0].heals_at_ns == 150_000_000
    assert (scenario.topology.planes, scenario.topology.t1_per_plane) == (2, 3)
    assert str(scenario.topology.queue.last_hop.limit) == "2 BDP"
    assert scenario.seed == 9
    with pytest.raises(InputError):
        load_scenario(str(file), settings={"seed[0]": 1})


ENDING = """
import io, json, os, sys
request = sys.stdin.buffer.readline()
if json.loads(request)["scenario"]["seed"] == 2 or "all" in {which!r}:
    print("died", file=sys.stderr)
    os.kill(os.getpid(), {number}) if {number} else os._exit({status})
sys.stdin = io.TextIOWrapper(io.BytesIO(request))
from testbed.__main__ import main
main()
"""
"""A run that ends in a given way: each, or that with the seed 2 alone."""


@pytest.mark.parametrize("which", ["all", "the second"])
@pytest.mark.parametrize(
    ("status", "number", "means"),
    [
        (ExitStatus.CRASHED, 0, ExitStatus.CRASHED),
        (0, signal.SIGSEGV, ExitStatus.CRASHED),
        (ExitStatus.MACHINE_CANNOT, 0, ExitStatus.MACHINE_CANNOT),
        (0, signal.SIGKILL, ExitStatus.UNTRUSTED),
    ],
)
def test_how_runs_ended_is_not_taken_for_mistrust(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    status: int,
    number: int,
    means: ExitStatus,
) -> None:
    """A crash of one run is the status of the series."""
    program = ENDING.format(which=which, status=int(status), number=int(number))
    monkeypatch.setattr("testbed.interpreter.TESTBED", (sys.executable, "-c", program))
    Path("tiny.yaml").write_text(TINY)
    called = call("simulate", "tiny.yaml", "--repeat", "2", "--no-figures", "--into", "here")
    assert called.status == means, called.err
    assert "died" in called.err
    (last,) = {run.status for run in load_series(Path("here")).done if run.error}
    assert last == (-number or status)


def test_results_that_cannot_be_written_are_named_by_their_option(call: Call) -> None:
    Path("tiny.yaml").write_text(TINY)
    Path("file").touch()
    called = call("simulate", "tiny.yaml", "--repeat", "2", "--results", "file/r")
    assert called.status == ExitStatus.WRONG_INPUT
    assert "--results: found file/r/tiny" in called.err
    assert "--into" not in called.err
    called = call("simulate", "tiny.yaml", "--repeat", "2", "--into", "file/r")
    assert "--into: found file/r, expected a directory to write to" in called.err
