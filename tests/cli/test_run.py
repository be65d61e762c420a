"""`testbed run` and `report`, with the experiment itself played by a function of the test."""

import json
import os
import re
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.cli.screen import showing_progress
from testbed.emulation.experiment import inside
from testbed.emulation.experiment.experiment import Experiment
from testbed.host.plan import EndpointPlan
from testbed.model.errors import ExitStatus, InputError, MachineError, RunFailedError
from testbed.model.fabric.topology import Topology
from testbed.model.scenario import Scenario
from testbed.model.summary import Expectation, FaultSummary, FlowSummary, Integrity, Summary
from testbed.model.summary.unit import NEVER, Time
from testbed.runs.making import links_named

from .conftest import Call

Progress = Callable[[str, float], None]
Records = Callable[[Scenario, Path, Progress], None]
Play = Callable[..., None]


MISSED = Expectation(
    scope="faults",
    figure="recovery_rtt",
    bound="at most 10",
    where="cut of l",
    value=12.0,
    holds=False,
)


def _summary(**changes: Any) -> Summary:
    flow = FlowSummary(
        flow=0,
        src="h0",
        dst="h4",
        transport="mrc",
        goodput_run_bps=37_416_000,
        undamaged_bps=38e6,
        ideal_run_bps=38e6,
        attainable_run_bps=38e6,
        ports_bps=38e6,
        ports_fraction=0.985,
        ideal_fraction=0.985,
        run_fraction=0.985,
        packets_sent=11_000,
        packets_lost=17,
        packets_retransmitted=19,
        packets_spurious=2,
        packets_lost_elsewhere=0,
        packets_reordered=5,
        reorder_depth_max=9,
        goodput_by_plane_bps={},
        evs=(),
        latency=None,
    )
    fault = FaultSummary(
        index=0,
        kind="blackhole",
        target="p0_t0_0--p0_t1_1",
        places=("p0_t0_0>p0_t1_1", "p0_t1_1>p0_t0_0"),
        actuator="openflow",
        requested_s=4.0,
        effective_s=4.001,
        effective_uncertainty_ms=1.0,
        heal_requested_s=7.0,
        healed_s=7.001,
        proof={},
        flows_affected=1,
        flows=(),
        detection=Time(ms=196.2, rtt=1.5, real_us=19.62),
        stall=Time(ms=262.0, rtt=2.0, real_us=26.2),
        deficit=Time(rtt=0.25),
    )
    return Summary(
        scenario="link-failure",
        description="",
        run="link-failure/x",
        seed=1,
        dilation=10_000,
        duration_s=10,
        verdict="trusted",
        reasons=("every check passed",),
        base_rtt_us=131_000,
        base_rtt_real_us=13.1,
        integrity=Integrity(
            bytes_sent=2**26, bytes_verified=2**26, bytes_lost=0, bytes_corrupted=0
        ),
        flows=(flow,),
        faults=(fault,),
    ).model_copy(update=changes)


def _records(_: Scenario, directory: Path, progress: Progress, **_options: object) -> None:
    progress("building the fabric", 0.0)
    progress("running", 0.5)
    (directory / "run.json").write_text("{}")
    (directory / "raw").mkdir()


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Have a run do what the test says and come to the summary that it says."""

    def play(records: Records = _records, summary: Summary | None = None) -> None:
        monkeypatch.setattr(
            "testbed.emulation.experiment.outside.run_experiment",
            lambda run, progress: records(run.scenario, run.directory, progress),
        )
        monkeypatch.setattr(
            "testbed.results.analyse.analyse",
            lambda _, **_options: _summary() if summary is None else summary,
        )

    return play


def _run_directories() -> list[Path]:
    return [path for path in Path("results").glob("*/*") if not path.is_symlink()]


def test_a_run_shows_its_figures_and_where_the_rest_is(call: Call, play: Play) -> None:
    play()
    called = call("run", "link-failure")
    assert called.status == 0
    (directory,) = _run_directories()
    assert directory.name.endswith("-1")
    rows = [line[1:-1].split("│") for line in called.out.splitlines()]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert ["h0 -> h4", "37.42 Mbit/s", "98.5%", "98.5%", "17", "19"] in cells
    name = "blackhole p0_t0_0--p0_t1_1"
    assert [name, "level in force, of ideal split", "-", "", ""] in cells
    assert ["", "detection, first EV", "196 ms", "1.5", "19.6 us"] in cells
    assert ["", "stall", "262 ms", "2", "26.2 us"] in cells
    assert ["", "recovery", "-", "-", "-"] in cells
    assert ["", "deficit", "", "0.25", ""] in cells
    assert "base RTT 131 ms (13.1 us at full speed)" in called.out
    assert "integrity: 64 MiB of 64 MiB verified, nothing lost or corrupted" in called.out
    assert "verdict: trusted\n  every check passed\n" in called.out
    assert f"report: {directory}/report.html\nfigures: {directory}/figures\n" in called.out
    # Beside the progress there may be the warning that another run is under way.
    assert re.findall(r"(?<= s )[ 0-9]+% .*", called.err) == ["  0% building the fabric"]


def test_without_a_terminal_progress_is_a_line_each_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a person is told to do is said at once, and once."""
    now_s = iter([0.0, *(0.7 * step for step in range(100))])
    monkeypatch.setattr("testbed.cli.screen.time.monotonic", lambda: next(now_s))
    with showing_progress() as progress:
        for step in range(98):
            told = "held; Ctrl-C ends it" if step in (3, 4) else f"run {step} ({step} s left): a"
            progress(told, step / 100)
    lines = capsys.readouterr().err.splitlines()
    times_s = [float(line.split()[0]) for line in lines]
    assert sum("Ctrl-C" in line for line in lines) == 1
    assert len(lines) == 8
    assert all(later - earlier >= 10 for earlier, later in pairwise(times_s[1:]))


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_without_figures_a_run_says_how_to_come_to_them(
    command: str, call: Call, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play()
    monkeypatch.setattr(
        "testbed.results.analyse.analyse",
        lambda _, drawn, **_options: pytest.fail("drawn") if drawn else _summary(),
    )
    monkeypatch.setattr("testbed.sim.simulate", _records)
    called = call(command, "link-failure", "--no-figures")
    assert called.status == 0
    (directory,) = _run_directories()
    assert f"neither report nor figures yet: testbed report {directory}\n" in called.out
    assert "report.html" not in called.out


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({}, 0, "nothing lost"),
        ({"verdict": "degraded", "reasons": ("busy",)}, 0, "verdict: degraded\n  busy"),
        ({"verdict": "invalid", "reasons": ("lag",)}, 4, "verdict: invalid\n  lag"),
        (
            {
                "integrity": Integrity(
                    bytes_sent=9, bytes_verified=8, bytes_lost=1, bytes_corrupted=0
                )
            },
            1,
            "integrity: 1 B lost and 0 B corrupted of 9 B",
        ),
        (
            {"expectations": (MISSED,)},
            1,
            "expectations: 1 of 1 not met\n  faults: recovery_rtt at most 10: 12 at cut of l\n",
        ),
        ({"expectations": (MISSED,), "verdict": "invalid", "reasons": ("lag",)}, 4, "lag"),
        (
            {
                "integrity": Integrity(
                    bytes_sent=9, bytes_verified=7, bytes_lost=0, bytes_corrupted=2
                ),
                "verdict": "invalid",
            },
            1,
            "0 B lost and 2 B corrupted",
        ),
    ],
)
def test_the_exit_status_says_what_a_run_came_to(
    call: Call, play: Play, changes: dict[str, Any], status: int, message: str
) -> None:
    play(summary=_summary(**changes))
    called = call("run", "link-failure")
    assert called.status == status
    assert message in called.out
    (directory,) = _run_directories()
    assert call("report", str(directory)).status == status
    assert call("report", "results/link-failure").status == status


def test_a_degraded_run_is_an_error_where_trust_is_required(call: Call, play: Play) -> None:
    play(summary=_summary(verdict="degraded", reasons=("busy",), expectations=(MISSED,)))
    assert call("run", "link-failure").status == ExitStatus.FAILED
    assert call("run", "link-failure", "--require-trusted").status == ExitStatus.UNTRUSTED
    assert call("report", "results/link-failure").status == ExitStatus.FAILED
    report = call("report", "results/link-failure", "--require-trusted")
    assert report.status == ExitStatus.UNTRUSTED
    play()
    assert call("run", "link-failure", "--require-trusted").status == ExitStatus.AS_EXPECTED


def test_a_metric_that_never_came_about_says_so(call: Call, play: Play) -> None:
    keys = ("recovery_ms", "recovery_rtt", "recovery_real_us")
    (fault,) = _summary().faults
    never = Time(ms=NEVER, rtt=NEVER, real_us=NEVER)
    play(summary=_summary(faults=(fault.model_copy(update={"recovery": never}),)))
    called = call("run", "link-failure", "--json")
    (written,) = json.loads(called.out)["summary"]["faults"]
    assert {written[key] for key in keys} == {"never"}


def test_json_is_all_that_stdout_holds(call: Call, play: Play) -> None:
    play()
    called = call("run", "link-failure", "--json", "--seed", "5", "--results", "out/here")
    result = json.loads(called.out)
    assert result["exit_status"] == called.status == 0
    assert Path(result["run"]).is_dir()
    assert result["run"].startswith("out/here/link-failure/")
    assert result["run"].endswith("-5")
    assert Summary.model_validate(result["summary"]) == _summary()
    assert json.loads(call("report", result["run"], "--json").out) == result["summary"]


def test_the_experiment_gets_the_scenario_with_the_seed_of_the_command_line(
    call: Call, play: Play
) -> None:
    seen: list[Scenario] = []

    def experiment(scenario: Scenario, directory: Path, progress: Progress) -> None:
        seen.append(scenario)
        _records(scenario, directory, progress)

    play(experiment)
    call("run", "link-failure", "--seed", "77")
    assert seen[0].seed == 77
    assert seen[0].name == "link-failure"


def test_a_machine_that_cannot_run_it_is_told_what_to_do(call: Call, play: Play) -> None:
    def experiment(_: Scenario, directory: Path, __: Progress) -> None:
        (directory / "manifest.json").write_text("{}")
        raise MachineError("no SRv6 in this kernel", "install a newer kernel")

    play(experiment)
    called = call("run", "link-failure")
    assert called.status == 3
    assert "error: no SRv6 in this kernel\n  remedy: install a newer kernel\n" in called.err
    assert "nothing is kept" in called.err
    assert _run_directories() == []
    assert not Path("results/link-failure").exists()


def test_more_messages_than_memory_holds(
    call: Call, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play()
    monkeypatch.setattr("testbed.runs.room.buffer_bytes", lambda _: 1 << 60)
    called = call("run", "link-failure")
    assert called.status == 3
    assert "or a smaller message_size or depth" in called.err
    assert not Path("results").exists()


def test_a_run_that_fails_keeps_its_logs(call: Call, play: Play) -> None:
    def experiment(_: Scenario, directory: Path, __: Progress) -> None:
        (directory / "logs" / "h0.log").write_text("died")
        raise RunFailedError("the endpoint of h0 ended: exit status 1")

    play(experiment)
    called = call("run", "link-failure")
    (directory,) = _run_directories()
    assert called.status == 4
    assert "error: the endpoint of h0 ended: exit status 1\n" in called.err
    assert f"kept so far (testbed clean removes it): {directory}" in called.err
    assert call("clean").out == f"removed {directory}\n"


def test_an_unexpected_error_is_kept_with_the_run(call: Call, play: Play) -> None:
    def experiment(*_: object) -> None:
        raise ZeroDivisionError("oops")

    play(experiment)
    called = call("run", "link-failure")
    (directory,) = _run_directories()
    assert called.status == ExitStatus.CRASHED
    assert "Traceback" not in called.err
    assert f"error: ZeroDivisionError: oops\n  traceback: {directory}/logs/" in called.err
    assert "ZeroDivisionError: oops" in (directory / "logs" / "traceback.log").read_text()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_run_that_is_stopped_says_what_is_kept(
    call: Call, play: Play, number: signal.Signals, status: int
) -> None:
    def experiment(_: Scenario, directory: Path, __: Progress) -> None:
        (directory / "logs" / "h0.log").write_text("begun")
        os.kill(os.getpid(), number)
        pytest.fail("the signal did not end the run")

    play(experiment)
    before = signal.getsignal(number)
    called = call("run", "link-failure")
    (directory,) = _run_directories()
    assert called.status == status
    assert f"error: interrupted by {number.name}; kept so far" in called.err
    assert str(directory) in called.err
    assert signal.getsignal(number) == before


def test_a_signal_within_a_library_that_wraps_what_is_raised_ends_the_run(
    call: Call, play: Play
) -> None:
    """As pydantic does with an exception in a function that it calls."""

    def experiment(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:  # noqa: BLE001 - that is the case here
            raise ValueError("error calling a function") from None

    play(experiment)
    called = call("run", "link-failure")
    assert called.status == 143
    assert "error: interrupted by SIGTERM; nothing was recorded, nothing is kept" in called.err


def test_a_hangup_that_is_ignored_stays_ignored(call: Call, play: Play) -> None:
    def experiment(scenario: Scenario, directory: Path, progress: Progress) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        _records(scenario, directory, progress)

    play(experiment)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert call("run", "link-failure").status == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_run_stopped_while_it_is_analysed_can_be_analysed_later(
    call: Call, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play()
    monkeypatch.setattr(
        "testbed.results.analyse.analyse", lambda _, **_options: os.kill(os.getpid(), signal.SIGINT)
    )
    called = call("run", "link-failure")
    (directory,) = _run_directories()
    assert called.status == 130
    assert f"its records are complete: testbed report {directory}" in called.err
    assert "nothing to remove" in call("clean").out


def test_a_run_that_is_on_is_not_cleaned(call: Call, play: Play) -> None:
    left: list[Path] = []

    def experiment(*_: object) -> None:
        from testbed.results.run_directory import is_locked  # noqa: PLC0415 - as `clean` asks, in the run

        left.extend(path for path in _run_directories() if is_locked(path))
        raise RunFailedError("enough seen")

    play(experiment)
    call("run", "link-failure")
    assert len(left) == 1


def test_links_to_capture_are_checked_before_anything_runs_and_handed_on(
    call: Call, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    play()

    def run(order: Experiment, progress: Progress) -> None:
        asked.extend(order.captured)
        _records(order.scenario, order.directory, progress)

    monkeypatch.setattr("testbed.emulation.experiment.outside.run_experiment", run)
    wrong = call("run", "link-failure", "--pcap", "p0_t0_0--p0_t1_9")
    assert wrong.status == 2
    assert "--pcap: found p0_t0_0--p0_t1_9, expected a link of clos-4plane" in wrong.err
    assert not Path("results").exists()
    links = ["p0_t0_0--p0_t1_1", "h0--p0_t0_0"]
    options = [word for link in (*links, links[0]) for word in ("--pcap", link)]
    assert call("run", "link-failure", *options).status == 0
    assert asked == links


def test_a_job_has_the_same_turns_of_a_shared_host_alone_as_beside_programs(
    call: Call, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its time alone is that of a slower endpoint, and the interference is too small."""
    serve: list[set[str]] = []
    play()

    def start_endpoint(plan: EndpointPlan, _log: Path, *, serves_programs: bool) -> None:
        if serves_programs:
            serve[-1].add(plan.host.name)

    def run(order: Experiment, progress: Progress) -> None:
        serve.append(set())
        part = SimpleNamespace(experiment=order, directory=order.directory, endpoints={})
        inside._start_endpoints(part, order.scenario, Path())  # type: ignore[arg-type]
        _records(order.scenario, order.directory, progress)

    monkeypatch.setattr(inside, "start_endpoint", start_endpoint)
    monkeypatch.setattr(inside, "receive_from_all", lambda *_: None)
    monkeypatch.setattr("testbed.emulation.experiment.outside.run_experiment", run)
    Path("jobs.yaml").write_text(
        "{name: jobs, topology: clos-4plane, duration: 5 s, interference: true, jobs: ["
        "{name: mine, workload: {kind: program, hosts: [h0, h4], command: ['true']}},"
        "{name: ring, workload: {kind: allreduce, hosts: [h4, h5]}}]}"
    )
    assert call("run", "jobs.yaml", "--allow-code", "--force").status == 0
    together, mine_alone, ring_alone = serve
    assert together == ring_alone == {"h4"}
    assert not mine_alone, "no workload sends there"


def test_what_only_the_simulator_has_is_refused(call: Call, play: Play) -> None:
    play()
    Path("paused.yaml").write_text(
        "{name: x, workload: {pairs: [[h0, h1]]}, topology: {name: x, planes: 1, t0_per_plane: 2, "
        "t1_per_plane: 1, hosts_per_t0: 1, pause: {}}}"
    )
    called = call("run", "paused.yaml")
    assert called.status == 2
    assert "topology.pause" in called.err
    assert "testbed simulate" in called.err


@pytest.mark.parametrize(
    "wrong", [("--hold", "--repeat", "2"), ("--hold-for", "soon"), ("--hold-for", "0s")]
)
def test_one_run_is_held_for_a_time_not_a_series(call: Call, wrong: tuple[str, ...]) -> None:
    called = call("run", "link-failure", *wrong)
    assert called.status == 2
    assert "--hold" in called.err
    assert not Path("results").exists()


def test_a_node_and_all_stand_for_their_links() -> None:
    """A link that is named twice is captured once."""
    links = links_named(TINY, ["h0", "h0--p0_t0_0"])
    assert links == ["h0--p0_t0_0", "h0--p1_t0_0"]
    assert links_named(TINY, ["p0_t1_0", "all"])[:2] == ["p0_t0_0--p0_t1_0", "p0_t0_1--p0_t1_0"]
    assert sorted(links_named(TINY, ["all"])) == sorted(TINY.links)
    with pytest.raises(InputError, match="expected a link of tiny"):
        links_named(TINY, ["h0", "h9"])


TINY = Topology(name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1)
