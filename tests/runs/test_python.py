"""`import testbed`: scenarios as objects, runs, results, sweeps."""

import inspect
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from html import escape
from multiprocessing import get_context
from pathlib import Path

import polars as pl
import pytest

import testbed
from testbed import InputError, Result, RunFailedError, Sweep
from testbed.model.errors import ExitStatus, MachineError
from testbed.model.faults.kinds import Cut
from testbed.model.summary.scopes import SCOPES
from testbed.model.workload import Permutation
from testbed.runs.job import JobRecord, error_of
from testbed.runs.series import groups_of
from testbed.sandbox.channel import encode_error
from tests.commands import completed

MINE = {
    "name": "mine",
    "topology": "clos-tiny",
    "duration": "40 RTT",
    "workload": {"kind": "permutation"},
    "timeline": [{"kind": "cut", "target": "p0_t0_0--p0_t1_0", "at": "10 RTT", "for": "15 RTT"}],
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A short simulated run."""
    return testbed.simulate(testbed.scenario(MINE), results=tmp_path_factory.mktemp("results"))


SIGNATURES = {
    "changed": "(scenario: Scenario, settings: Mapping[str, Any]) -> Scenario",
    "emulate": (
        "(scenario: Scenario | str | Path, *, seed: int | None = None, results: str | Path = "
        "PosixPath('results'), attempts: int = 3) -> Result"
    ),
    "load_result": "(directory: str | Path) -> Result",
    "load_scenario": (
        "(name_or_path: str | Path, settings: Mapping[str, Any] = mappingproxy({})) -> Scenario"
    ),
    "load_topology": "(name_or_path: str | Path) -> Topology",
    "scenario": "(content: Mapping[str, Any]) -> Scenario",
    "simulate": (
        "(scenario: Scenario | str | Path, *, seed: int | None = None, results: str | Path = "
        "PosixPath('results')) -> Result"
    ),
    "study": (
        "(given: str | Path | Mapping[str, Any], *, into: str | Path | None = None, "
        "results: str | Path = PosixPath('results'), on: str | None = None, "
        "archive: str | Path | None = None) -> Study"
    ),
    "sweep": (
        "(scenario: Scenario | str | Path, values: Mapping[str, Sequence[Any]], *, "
        "seeds: int | Sequence[int] = 1, emulated: bool = False, results: str | Path = "
        "PosixPath('results'), attempts: int = 3) -> Sweep"
    ),
    "topology": "(content: Mapping[str, Any]) -> Topology",
}
"""Programs of users depend on these: a change of one belongs into CHANGELOG.md."""


def test_the_interface_is_what_was_promised() -> None:
    functions = {name for name in testbed.__all__ if inspect.isfunction(getattr(testbed, name))}
    assert functions == SIGNATURES.keys()
    for name, signature in SIGNATURES.items():
        found = str(inspect.signature(getattr(testbed, name)))
        for prefix in ("testbed.model.scenario.", "testbed.runs.result.", "pathlib."):
            found = found.replace(prefix, "")
        for prefix in ("testbed.model.fabric.topology.", "collections.abc.", "typing."):
            found = found.replace(prefix, "")
        for prefix in ("testbed.runs.python.", "testbed.studies.study.study.", "Pure"):
            found = found.replace(prefix, "")
        assert found == signature, name


def test_every_name_is_documented_and_there() -> None:
    page = (Path(__file__).parents[2] / "docs/python.md").read_text()
    for name in testbed.__all__:
        assert getattr(testbed, name)
        if name != "__version__":
            assert getattr(testbed, name).__doc__
        assert f"`{name}" in page or f".{name}" in page, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = testbed.nothing


LAZY = """
import sys
import testbed
assert testbed.__version__
heavy = {"polars", "matplotlib", "pydantic", "numpy", "yaml"} & sys.modules.keys()
assert not heavy, heavy
ours = {name for name in sys.modules if name.startswith("testbed.")}
assert not ours, ours
"""

PORTABLE = """
import sys
import testbed

class Refuse:
    names = ("testbed.emulation",
             "pyroute2", "mininet", "ryu", "eventlet")
    def find_spec(self, name, path=None, target=None):
        if name.startswith(self.names):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Refuse())
for name in testbed.__all__:
    getattr(testbed, name)
run = testbed.simulate("healthy", results=sys.argv[1])
run.metrics, run.tables, run.figures
"""


@pytest.mark.parametrize("program", [LAZY, pytest.param(PORTABLE, marks=pytest.mark.simulated)])
def test_it_imports_late_and_nothing_that_needs_linux(program: str, tmp_path: Path) -> None:
    done = completed([sys.executable, "-c", program, str(tmp_path)])
    assert done.returncode == 0, done.stderr


def test_scenarios_are_written_as_mappings_or_objects() -> None:
    written = testbed.scenario(MINE)
    parts = {
        **MINE,
        "topology": testbed.load_topology("clos-tiny"),
        "workload": Permutation(),
        "timeline": [
            Cut.model_validate(
                {"target": "p0_t0_0--p0_t1_0", "at": "1.5 s", "for": "2.25 s"},
            )
        ],
    }
    assert testbed.scenario({**parts, "timeline": MINE["timeline"]}) == written
    assert testbed.scenario(parts).timeline[0].kind == "cut"
    assert testbed.changed(written, {"transport.evs": 2}).transport != written.transport
    assert testbed.changed(written, {}) == written
    assert testbed.topology(
        {"name": "small", "planes": 2, "t0_per_plane": 1, "t1_per_plane": 1, "hosts_per_t0": 1}
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transport.spry": "blind"}, r"^transport\.spry: .*\n.*did you mean spray\?"),
        ({"transport.spray": "nix"}, r"^transport\.spray: found nix, expected adaptive"),
        ({"timeline[0].at": "soon"}, r"^timeline\[0\]\.at: found soon"),
        ({"timeline[7].at": "1 s"}, "the path of an entry"),
    ],
)
def test_a_wrong_value_is_named_by_its_key(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        testbed.changed(testbed.scenario(MINE), settings)


def test_a_name_that_is_none_is_an_error() -> None:
    with pytest.raises(InputError, match="no-such"):
        testbed.simulate("no-such")
    with pytest.raises(InputError, match=r"kernel|emulat"):
        testbed.simulate(testbed.changed(testbed.scenario(MINE), {"transport": {"kind": "tcp"}}))


@pytest.mark.simulated
def test_a_result_has_metrics_tables_and_figures(result: Result) -> None:
    assert result.trusted
    assert result.simulated
    assert result.seed == 1
    stall = result.metrics.filter(scope="faults", metric="stall_rtt")
    assert stall["value"].to_list() == [result.summary.faults[0].values["stall_rtt"]]
    assert stall["unit"].to_list() == ["RTT"]
    assert {"arrivals", "losses", "ev_events"} <= result.tables.keys()
    losses = result.tables["losses"].filter(~pl.col("spurious"))
    assert losses.height == losses.filter(pl.col("path") == "p0/t1_0").height > 0
    assert losses["t"].min() > 0  # type: ignore[operator]
    figure = result.figures["goodput"]
    assert figure._repr_svg_().startswith("<?xml")
    assert figure.png.read_bytes().startswith(b"\x89PNG")
    assert escape(figure.caption) in result.figures._repr_html_()
    assert "<?xml" not in result.figures._repr_html_()
    assert "trusted" in result._repr_html_()
    assert "stall_rtt" in result._repr_html_()
    assert testbed.load_result(result.directory).summary == result.summary
    assert testbed.load_result(result.directory.parent).directory == result.directory
    assert result.report().is_file()


@pytest.mark.simulated
def test_equal_seeds_give_equal_results(result: Result, tmp_path: Path) -> None:
    again = testbed.simulate(result.scenario, results=tmp_path)
    assert again.metrics.equals(result.metrics)
    other = testbed.simulate(result.scenario, seed=2, results=tmp_path)
    assert not other.metrics.equals(result.metrics)


@pytest.mark.simulated
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_process_that_was_forked_after_a_run_says_so_at_once(
    result: Result, tmp_path: Path
) -> None:
    """Polars would wait there for threads that only the first process has."""
    assert result.trusted
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        simulated = pool.submit(testbed.simulate, "healthy", results=tmp_path)
        with pytest.raises(MachineError, match=r'forked.*\n.*get_context\("spawn"\)'):
            simulated.result()
        with pytest.raises(MachineError, match="forked"):
            pool.submit(_goodput, result.directory).result()
    assert not [*tmp_path.iterdir()]


def _goodput(directory: Path) -> object:
    return testbed.load_result(directory).tables["arrivals"]["bytes"].sum()


def test_a_sweep_compares_its_cases(tmp_path: Path) -> None:
    made = testbed.sweep(
        testbed.scenario(MINE),
        {"transport.spray": ["adaptive", "blind"]},
        seeds=2,
        results=tmp_path,
    )
    assert isinstance(made, Sweep)
    assert [case.settings for case in made] == [
        {"transport.spray": "adaptive"},
        {"transport.spray": "blind"},
    ]
    frame = made.frame
    assert frame["seed"].to_list() == [1, 2, 1, 2]
    fraction = frame.group_by("transport.spray").agg(pl.col("flows.run_fraction").min())
    by_spray = dict(fraction.iter_rows())
    assert by_spray["adaptive"] > by_spray["blind"]
    keys = [f"{key}.{name}" for key, scope in SCOPES.items() for name in scope.quantities]
    assert frame.columns == ["transport.spray", "seed", "verdict", *keys]
    first = made.cases[0].runs[0]
    assert {*first.metrics["scope"]} == {
        key for key, scope in SCOPES.items() if scope.found(first.summary)
    }
    compared = {*made.comparison["metric"]}
    assert {"goodput of all flows", "message latency, p99", "recovery"} <= compared
    row = made.comparison.filter(metric="packets lost")
    assert row["case"].to_list() == ["transport.spray=adaptive", "transport.spray=blind"]
    assert (row["low"] <= row["median"]).all()
    assert row["runs"].to_list() == ["2 of 2"] * 2
    assert row["confident"].to_list() == [False] * 2, "a range of two"
    assert "transport.spray=blind" in made._repr_html_()
    assert "with their range of 2" in made._repr_html_()
    groups = groups_of([made.directory])
    assert [group.name for group in groups] == [case.name for case in made]
    assert [group.runs for group in groups] == [
        tuple(run.directory for run in case.runs) for case in made
    ]
    case = made.cases[1]
    latest = testbed.load_result(made.directory / "2")
    assert latest.directory in [run.directory.resolve() for run in case.runs]


@pytest.mark.simulated
def test_a_wrong_case_of_a_sweep_ends_it_before_it_begins(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nix"):
        testbed.sweep(
            testbed.scenario(MINE), {"transport.spray": ["blind", "nix"]}, results=tmp_path
        )
    assert not [*tmp_path.iterdir()]


def test_a_run_that_is_not_made_says_why() -> None:
    """The parts of an error come from the process of the run as they are, not as text."""
    missing = MachineError("no root", "sudo")
    said = encode_error(missing)
    record = JobRecord(ExitStatus.MACHINE_CANNOT, 1.0, message=str(missing), error=said)
    cannot = error_of(record, Path("x.log"))
    assert isinstance(cannot, MachineError)
    assert (cannot.what, cannot.remedy) == ("no root", "sudo")
    wrong = InputError.of("transport.spray", "nix", "adaptive")
    record = JobRecord(ExitStatus.WRONG_INPUT, 1.0, error=encode_error(wrong))
    refused = error_of(record, Path("x.log"))
    assert isinstance(refused, InputError)
    assert refused.problems == wrong.problems
    failed = error_of(JobRecord(ExitStatus.UNTRUSTED, 1.0, message="a process died"), Path("x.log"))
    assert isinstance(failed, RunFailedError)
    assert "a process died; see x.log" in str(failed)


@pytest.mark.root
@pytest.mark.e2e
@pytest.mark.alone
def test_an_emulated_run_gives_the_same_kind_of_result(tmp_path: Path) -> None:
    made = testbed.emulate(testbed.scenario(MINE), results=tmp_path)
    assert not made.simulated
    assert made.verdict in ("trusted", "degraded", "invalid")
    assert made.summary.integrity.intact
    assert made.metrics.filter(scope="faults", metric="stall_rtt").height == 1
