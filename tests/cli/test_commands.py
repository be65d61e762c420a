"""What the commands that need no root print."""

import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from testbed.cli.doctor import WITH_ROOT, WITHOUT_ROOT
from testbed.model.errors import ExitStatus
from testbed.model.files.scenarios import load_scenario
from testbed.model.json_schema import scenario_schema, topology_schema
from testbed.model.run_files.layout import MANIFEST, SUMMARY
from tests.commands import completed

from .conftest import Call

PROJECT = Path(__file__).parents[2]
NAMES = {
    kind: sorted(path.stem for path in (PROJECT / kind).glob("*.yaml"))
    for kind in ("scenarios", "topologies")
}
COMMAND = [sys.executable, "-c", "from testbed.cli import main; main()"]


@pytest.mark.parametrize("name", NAMES["scenarios"] + NAMES["topologies"])
def test_everything_that_ships_is_valid_and_without_warnings(call: Call, name: str) -> None:
    called = call("validate", name)
    assert (called.status, called.err) == (0, "")
    assert f"{name}.yaml: a valid " in called.out


@pytest.mark.parametrize("name", NAMES["scenarios"] + NAMES["topologies"])
def test_what_ships_is_called_like_its_file(name: str) -> None:
    (file,) = PROJECT.glob(f"*/{name}.yaml")
    assert yaml.safe_load(file.read_text())["name"] == name


def test_list_names_and_describes_everything(call: Call) -> None:
    plain = call("list")
    assert (plain.status, plain.err) == (0, "")
    listed = json.loads(call("list", "--json").out)
    assert {kind: [one["name"] for one in found] for kind, found in listed.items()} == NAMES
    for one in listed["scenarios"] + listed["topologies"]:
        assert one["description"]
        assert re.search(
            rf"^{re.escape(one['name'])} +{re.escape(one['description'])}$",
            plain.out,
            re.MULTILINE,
        )


@pytest.mark.parametrize(
    "command", [("list",), ("paths", "clos-tiny", "h0", "h1"), ("trace", "clos-tiny", "h0", "h1")]
)
def test_columns_leave_no_blanks_behind_them(call: Call, command: tuple[str, ...]) -> None:
    rows = call(*command).out.splitlines()
    assert len(rows) > 3
    assert not [row for row in rows if row != row.rstrip()]


@pytest.mark.parametrize(("command", "first"), [((), "Run:\n"), (("fault",), "Commands:\n")])
def test_help_says_of_every_command_what_it_does_and_cuts_nothing_off(
    call: Call, command: tuple[str, ...], first: str
) -> None:
    _, _, listed = call(*command, "--help").out.partition(first)
    lines = [line for line in listed.rstrip().splitlines() if line.startswith(" ")]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"  \S+ +[A-Z].*[^.]\.", line)] == []


def test_help_has_at_most_26_commands_each_with_its_purpose(call: Call) -> None:
    names = re.findall(
        r"^  ([a-z][a-z-]+) ", call("--help").out.partition("Run:\n")[2], re.MULTILINE
    )
    assert len(names) == len({*names}) <= 26
    assert "None" not in call("--help").out


def test_help_and_doctor_agree_on_the_commands_that_take_root(call: Call) -> None:
    """Those by hand do not: a run of `testbed device` belongs to its user."""
    listed = call("--help").out.partition("Run:\n")[2] + call("ev", "--help").out.replace(
        "\n  run ", "\n  ev-run "
    )
    marked = set(re.findall(r"^  ([a-z-]+) .*\(root\)\.$", listed, re.MULTILINE))
    with_root = [name.replace("ev run", "ev-run") for name in WITH_ROOT.split(", ")]
    assert marked == {name for name in with_root if " --" not in name}
    named = re.split(", |; | and ", ", ".join(WITHOUT_ROOT))
    assert {name.split()[0] for name in named} <= {
        *re.findall(r"^  ([a-z][a-z-]+) ", listed, re.MULTILINE)
    }
    for command in ("fault", "port", "ev"):
        assert "its user's" in " ".join(call(command, "--help").out.split())


def test_validate_says_what_would_run(call: Call) -> None:
    called = call("validate", "clos-8plane")
    for fact in ("hosts: 4", "switches: 48", "emulated 10 Mbit/s", "13.08 us, emulated 130.8 ms"):
        assert fact in called.out
    facts = json.loads(call("validate", "clos-8plane", "--json").out)
    assert facts["valid"] is True
    assert facts["kind"] == "topology"
    assert facts["facts"]["paths between racks"] == 32


def test_validate_warns(call: Call) -> None:
    text = (PROJECT / "scenarios" / "link-failure.yaml").read_text()
    Path("x.yaml").write_text(text.replace("backups: 0.25", "evs: 32"))
    called = call("validate", "x.yaml")
    assert called.status == 0
    assert called.err.startswith("warning: x.yaml: transport.evs: each EV detects")
    (warning,) = json.loads(call("validate", "x.yaml", "--json").out)["warnings"]
    assert warning["where"] == "transport.evs"


def test_validate_tells_problems_as_json(call: Call) -> None:
    Path("x.yaml").write_text("planes: 9\n")
    called = call("validate", "x.yaml", "--json")
    assert called.status == 2
    result = json.loads(called.out)
    assert (result["kind"], result["valid"]) == ("topology", False)
    assert {
        "where": "x.yaml:1: planes",
        "found": "9",
        "expected": "at most 8 (planes, and ports of each NIC)",
        "remedy": "",
    } in result["problems"]


def test_paths_between_racks(call: Call) -> None:
    found = json.loads(call("paths", "clos-tiny", "h0", "h1", "--json").out)
    assert found[3] == {
        "path": "p1/t1_1",
        "plane": 1,
        "t1": 1,
        "ev": 0x90000,
        "carrier": "5f00:0:1200:2201:1201:3200::",
        "links": ["h0--p1_t0_0", "p1_t0_0--p1_t1_1", "p1_t0_1--p1_t1_1", "h1--p1_t0_1"],
    }
    plain = call("paths", "clos-tiny", "h0", "h1").out
    assert re.search(
        r"^p1/t1_1 +0x00090000 +5f00:0:1200:2201:1201:3200:: +h0--p1_t0_0", plain, re.MULTILINE
    )


def test_paths_below_one_t0(call: Call) -> None:
    found = json.loads(call("paths", "clos-4plane", "h0", "h3", "--json").out)
    assert [one["path"] for one in found] == ["p0", "p1", "p2", "p3"]
    assert found[2]["links"] == ["h0--p2_t0_0", "h3--p2_t0_0"]


def test_paths_between_nodes_are_those_of_each_rail(call: Call) -> None:
    found = json.loads(call("paths", "clos-rails", "n0", "n2", "--json").out)
    ends = [(one["src"], one["dst"], one["path"]) for one in found]
    assert ends == [(f"h{k}", f"h{8 + k}", f"p{plane}") for k in range(4) for plane in range(2)]
    assert found[3]["links"] == ["h1--p1_t0_1", "h9--p1_t0_1"]
    plain = call("paths", "clos-rails", "n0", "n2").out
    assert re.search(r"^h1 +h9 +p1 +0x00010000 ", plain, re.MULTILINE)
    across = json.loads(call("paths", "clos-rails", "h0", "h5", "--json").out)
    assert [one["path"] for one in across] == ["p0/t1_0", "p1/t1_0", "p0/t1_1", "p1/t1_1"]
    wrong = call("paths", "clos-rails", "n4", "n0").err
    assert "SRC DST: found n4 n0, expected two hosts, or two different nodes of n0 to n3" in wrong


def test_rails_are_not_exported_to_htsim_which_has_none(call: Call) -> None:
    refused = call("topo", "clos-rails", "--export", "htsim", "new")
    assert refused.status == 2
    assert "--export: found htsim, expected another form" in refused.err
    assert not Path("new").exists()
    assert call("topo", "clos-rails", "--export", "linux", "new").status == 0


def test_a_topology_with_nodes_says_how_many(call: Call) -> None:
    facts = json.loads(call("validate", "clos-rails", "--json").out)["facts"]
    assert facts["nodes"] == "4 of 4 NICs, NIC k of all below the same T0s"


def test_the_schemas_in_docs_are_up_to_date(call: Call) -> None:
    assert call("schema", "--directory", "new").status == 0
    for name in ("topology", "scenario", "summary"):
        new = Path("new", f"{name}.json").read_text()
        assert (PROJECT / "docs" / "schema" / f"{name}.json").read_text() == new, (
            "run: .venv/bin/testbed schema"
        )


def test_the_schemas_know_what_the_files_that_ship_use() -> None:
    topology, scenario = topology_schema(), scenario_schema()
    for kind, schema in (("topologies", topology), ("scenarios", scenario)):
        for name in NAMES[kind]:
            data = yaml.safe_load((PROJECT / kind / f"{name}.yaml").read_text())
            assert set(schema["required"]) <= set(data) <= set(schema["properties"])
    rate = topology["properties"]["port_rate"]
    assert rate["default"] == "100 Gbit/s"
    assert re.search(rate["pattern"], "2.5 Tbit/s")
    assert not re.search(rate["pattern"], "100")
    assert {"type": "string"} in scenario["properties"]["topology"]["anyOf"]


def test_a_schema_that_cannot_be_written(call: Call) -> None:
    Path("file").write_text("")
    called = call("schema", "--directory", "file")
    assert called.status == 2
    assert "--directory: found file/topology.json, expected a file to write" in called.err


# --- clean --------------------------------------------------------------------------------------


def _run(name: str, *files: str) -> Path:
    path = Path("results") / name
    (path / "logs").mkdir(parents=True)
    (path / "logs" / "h0.log").write_text("x")
    for file in files:
        (path / file).parent.mkdir(exist_ok=True)
        (path / file).write_text("{}")
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_clean_removes_broken_off_runs_only(call: Call) -> None:
    broken = _run("a/20260101T120000-1")
    uncollected = _run("a/20260101T100000-1", "run.json")
    whole = _run("a/20260101T110000-1", "run.json", "raw/h0.qp.bin")
    analysed = _run("a/20260101T110000-1-2", "summary.json", "run.json")
    running = _run("b/20260101T130000-7")
    other = _run("b/my-notes")
    alone = _run("c/20260101T120000-1")
    prompt = _run("shell/20260101T120000-1", "stream.ndjson")
    Path("results/a/latest").symlink_to(broken.name)
    with _locked(running):
        would = call("clean", "--dry-run").out
        assert would.splitlines() == [
            f"would remove {path}" for path in (uncollected, broken, alone)
        ]
        assert broken.exists()
        called = call("clean", "--json")
    assert json.loads(called.out)["removed"] == [str(uncollected), str(broken), str(alone)]
    assert not broken.exists()
    assert not alone.parent.exists()
    assert all(path.exists() for path in (whole, analysed, running, other, prompt))
    assert Path("results/a/latest").resolve() == analysed.resolve()


def test_clean_removes_unfinished_runs_of_series(call: Call) -> None:
    case = "a/series-20260101T120000/1-evs-4"
    broken, done = _run(f"{case}/20260101T120000-1"), _run(f"{case}/20260101T120000-2", SUMMARY)
    alone = _run("into/1/20260101T130000-1")
    elsewhere = _run("a/series-20260101T120000/2/20260101T140000-1")
    (elsewhere / MANIFEST).write_text('{"host": "another"}')
    assert json.loads(call("clean", "--json").out)["removed"] == [str(broken), str(alone)]
    assert done.exists()
    assert elsewhere.exists()


@pytest.mark.parametrize("results", ["results", "other place"])
def test_what_is_told_to_remove_a_run_removes_it(call: Call, results: str) -> None:
    for below in ("a", "a/series-20260101T120000/1"):
        run = Path(results, below, "20260101T120000-1")
        run.mkdir(parents=True)
        (run / MANIFEST).touch()
        told = re.search(r"testbed (clean.*) removes it", call("report", str(run)).err)
        assert told is not None
        assert call(*shlex.split(told[1])).out.endswith(f"{run}\n")
        assert not run.exists()


def test_clean_of_nothing(call: Call) -> None:
    called = call("clean", "--results", "nowhere")
    assert (called.status, called.out) == (0, "nothing to remove in nowhere\n")


def test_clean_of_what_belongs_to_somebody_else(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    broken = _run("a/20260101T120000-1")
    monkeypatch.setattr("shutil.rmtree", refuse)
    called = call("clean")
    assert called.status == 3
    assert f"error: cannot remove {broken}: Permission denied\n  remedy: " in called.err


# --- the command as a process -------------------------------------------------------------------


def test_help_is_quick_and_names_every_command() -> None:
    imported = completed(
        [sys.executable, "-c", "import sys, testbed.cli; print(*sys.modules)"], check=True
    )
    loaded = {name.partition(".")[0] for name in imported.stdout.split()}
    heavy = {"numpy", "polars", "matplotlib", "ryu", "mininet", "pyroute2", "pydantic", "yaml"}
    assert not heavy & loaded
    best = float("inf")
    for _ in range(3):
        before = os.times()
        shown = completed([*COMMAND, "--help"], check=True)
        after = os.times()
        best = min(
            best,
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system,
        )
    for command in (
        "run",
        "report",
        "list",
        "validate",
        "paths",
        "schema",
        "clean",
        "shell",
        "topo",
        "trace",
    ):
        assert re.search(rf"^  {command} ", shown.stdout, re.MULTILINE)
    assert best < 0.3


def test_a_reader_that_leaves_early_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    called = subprocess.run(
        [*COMMAND, "paths", "clos-8plane", "h0", "h2", "--json"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert called.stderr == ""
    assert called.returncode == 1


def test_an_unexpected_error_is_told_with_its_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr("testbed.model.files.topologies.load_topology", fail)
    called = call("paths", "clos-tiny", "h0", "h1")
    assert called.status == ExitStatus.CRASHED
    first, *others = called.err.splitlines()
    assert first == "error: RuntimeError: something else"
    assert any("raise RuntimeError" in line for line in others)


# --- topologies with changes --------------------------------------------------------------------

CHANGED = """\
name: x
topology: {base: %s, %s}
workload: {pairs: [[h0, h4]]}
"""


def test_a_scenario_changes_keys_of_a_topology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(
        CHANGED % ("clos-4plane", "t1_per_plane: 3, queue: {last_hop: {limit: 2 BDP}}")
    )
    topology = load_scenario("./x.yaml").topology
    assert (topology.planes, topology.t1_per_plane) == (4, 3)
    assert str(topology.queue.last_hop.limit) == "2 BDP"


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        ("clos-4plan", "planes: 2", "x.yaml:2: topology.base: found clos-4plan, expected one of"),
        ("clos-4plane", "plane: 2", "x.yaml:2: topology.plane: found the unknown key plane"),
        ("clos-4plane", "planes: 9", "x.yaml:2: topology.planes: found 9, expected at most 8"),
        ("clos-4plane", "dilation: atuo", "found atuo, expected a number (factor by which"),
        ("./none.yaml", "planes: 9", "topology.base: found none.yaml, which does not exist"),
    ],
)
def test_what_is_wrong_with_it_is_told(call: Call, base: str, changes: str, message: str) -> None:
    Path("x.yaml").write_text(CHANGED % (base, changes))
    called = call("validate", "x.yaml")
    assert called.status == 2
    assert message in called.err
