"""Every figure of the paper is well formed, and `testbed figures` judges runs as it says."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from testbed.model.errors import ExitStatus, InputError, RunFailedError
from testbed.model.faults.kinds import EvLoss, Flap
from testbed.model.flows import flows_of
from testbed.model.scenario import Scenario
from testbed.model.summary import State
from testbed.model.transport import Mrc
from testbed.model.workload import Training
from testbed.runs.job import FORMS, JobRecord
from testbed.runs.process import LocalExecutor
from testbed.runs.store import Store
from testbed.studies.paper.experiments.failover import FAILOVER
from testbed.studies.paper.figure import (
    Check,
    PaperFigure,
    Variant,
    at_least,
    at_most,
    costs_less,
    shown,
)
from testbed.studies.paper.outcome import CheckOutcome, FigureOutcome, FigureRun, OutcomeStore
from testbed.studies.paper.planning import (
    BY_NAME,
    FIGURES,
    PAPER_SCENARIOS,
    forms_of,
    plan,
    plan_variant,
    select_figures,
)
from testbed.studies.paper.report import ReportRow, as_markdown, render
from testbed.studies.paper.reproduction import judge, reproduce
from tests.runs.test_engine import _made as made

from .made_up import VARIANTS

pytestmark = pytest.mark.simulated


def test_every_figure_is_there_once() -> None:
    numbers = [figure.number for figure in FIGURES]
    assert len(set(numbers)) == len(numbers)


def test_a_variants_name_means_one_run() -> None:
    for figure in FIGURES:
        for variant in figure.variants:
            assert VARIANTS[variant.name] == variant


@pytest.mark.parametrize("name", VARIANTS)
def test_every_run_is_a_valid_scenario_of_its_name(name: str, tmp_path: Path) -> None:
    made = plan_variant(VARIANTS[name], "simulated")
    assert made.scenario.name == name
    assert not made.job.how.drawn
    usual_s = 80 if "emulated" in VARIANTS[name].excluded else 15
    longer_s = {"incast-roce-1": 200, "incast-roce-8": 200, "incast-mrc": 60, "incast-mrc-8": 60}
    longer_s |= {"permutation-dcqcn-8": 60, "plane-shared": 24}
    longer_s |= {"probe-each-ms": 300, "nic-transceiver": 306}
    if name.startswith("port-remap-"):
        longer_s[name] = 24
    longer_s |= {"steps-remap-30": 80, "steps-remap-100": 210}
    if name.startswith("arrivals-"):
        longer_s[name] = 3500
    assert made.scenario.duration <= longer_s.get(name, usual_s) * 10**9
    assert Store(tmp_path).best(made) is None


def test_each_seed_has_a_scenario_of_its_own() -> None:
    first, second = (plan_variant(VARIANTS["lossy-ev"], "simulated", seed) for seed in (1, 2))
    assert first.job.file != second.job.file
    assert (first.scenario.seed, second.scenario.seed) == (1, 2)
    assert (first.job.name, second.job.name) == ("lossy-ev", "lossy-ev, seed 2")


def test_no_scenario_is_left_over() -> None:
    used = {variant.scenario for variant in VARIANTS.values()}
    used |= {variant.scenario for figure in BY_NAME for variant in figure.variants}
    assert {file.stem for file in PAPER_SCENARIOS.glob("*.yaml")} == used


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(InputError, match="expected one of"):
        select_figures(["9z"])


def _make(
    figures: Sequence[PaperFigure], results: Path
) -> tuple[tuple[FigureOutcome, ...], Sequence[str]]:
    told: list[str] = []
    planned = plan(figures, results, ("simulated",))
    executor = LocalExecutor(results)
    return reproduce(figures, planned, executor, lambda what, _: told.append(what)), told


def _twelve() -> PaperFigure:
    """Figure 12, its run cut short."""
    (figure,) = select_figures(["12"])
    variant, *_ = figure.variants
    loss = {"kind": "ev_loss", "target": "h0>p0_t0_0", "at": "1200 ms", "for": "1600 ms"}
    short = replace(variant, changes={"duration": "4 s", "timeline": [loss]})
    return replace(figure, variants=(short,))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where figure 12 has been made, in the simulator."""
    directory = tmp_path_factory.mktemp("results")
    (outcome,), told = _make((_twelve(),), directory)
    assert outcome.holds == "yes"
    assert any("lossy-ev" in what for what in told)
    return directory


def test_a_figure_is_judged_drawn_and_kept(results: Path) -> None:
    assert "lossy-ev" in (results / "report.html").read_text()
    assert (results / "figures" / "simulated" / "figure-12-13.png").is_file()
    table = {row["figure"]: row for row in json.loads((results / "table.json").read_text())}
    assert table["12-13"]["simulated"]["holds"] == "yes"
    assert table["12-13"]["emulated"]["holds"] == "not run"
    head, _, *lines = (results / "table.md").read_text().splitlines()
    assert [line.count("|") for line in lines] == [head.count("|")] * len(lines)
    (twelve,) = (line for line in lines if line.startswith("| 12-13 |"))
    assert "| simulated |" in twelve
    assert twelve.endswith("| yes |")


def test_runs_that_are_there_are_not_made_again(results: Path) -> None:
    (outcome,), told = _make((_twelve(),), results)
    assert outcome.holds == "yes"
    assert not any("lossy-ev" in what for what in told)
    assert len(plan((_twelve(),), results, ("simulated",), again=True).due) == 1


def test_a_figure_leaves_the_others_as_they_are(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twelve = _twelve()
    other = replace(twelve, number="14")
    monkeypatch.setattr("testbed.studies.paper.reproduction.FIGURES", (twelve, other))
    picture = results / "figures" / "simulated" / "figure-12-13.svg"
    picture.write_text("as it was")
    _make((other,), results)
    assert picture.read_text() == "as it was"
    table = {row["figure"]: row for row in json.loads((results / "table.json").read_text())}
    assert [table[number]["simulated"]["holds"] for number in ("12-13", "14")] == ["yes", "yes"]


@pytest.mark.parametrize(
    ("error", "crashed"),
    [(ZeroDivisionError("nothing was sent"), True), (RunFailedError("nothing was sent"), False)],
)
def test_a_figure_that_cannot_be_measured_does_not_cost_the_others(
    results: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, *, crashed: bool
) -> None:
    """A run that shows nothing is a failed run, and no mistake in the program."""

    def broken(_: object) -> tuple[Check, ...]:
        raise error

    good = _twelve()
    bad = replace(good, number="14", measure=broken)
    monkeypatch.setattr("testbed.studies.paper.reproduction.FIGURES", (bad, good))
    (first, second), _ = _make((bad, good), results)
    assert first.holds == "not run"
    assert "nothing was sent" in first.failures["measuring"]
    assert second.holds == "yes"
    assert (first.crashed, second.crashed) == (crashed, False)


@pytest.mark.parametrize("status", [ExitStatus.FAILED, ExitStatus.CRASHED])
def test_a_run_that_crashed_is_told_from_one_that_failed(tmp_path: Path, status: int) -> None:
    planned = plan((_twelve(),), tmp_path, ("simulated",))
    (runs,) = planned.runs.values()
    failures = {run.job.key: JobRecord(status, 1.0, message="no luck") for run in runs}
    outcome_store = OutcomeStore(tmp_path / "figures", "simulated")
    outcome = judge(_twelve(), runs, failures, planned.store, outcome_store)
    assert outcome.holds == "not run"
    assert outcome.crashed is (status == ExitStatus.CRASHED)


def _run(name: str, verdict: State, directory: Path, commit: str, *, modified: bool) -> FigureRun:
    place = directory / name
    place.mkdir()
    manifest = {
        "git": {"commit": commit, "modified": modified},
        **dict.fromkeys(("cpus", "cpu", "kernel", "core"), "x"),
    }
    (place / "manifest.json").write_text(json.dumps(manifest))
    return FigureRun(
        name=name,
        directory=place,
        seed=1,
        dilation=1e4,
        verdict=verdict,
        reasons=(),
        attempts=1,
        expected_load=0.5,
    )


def _row(
    tmp_path: Path,
    checks: tuple[Check, ...],
    commits: tuple[str, str],
    second: State = "degraded",
) -> ReportRow[FigureOutcome]:
    (figure,) = select_figures(["14"])
    runs = (
        _run("same-ev", "trusted", tmp_path, commits[0], modified=False),
        _run("same-ev-no-skip", second, tmp_path, commits[1], modified=commits[1] == "b" * 40),
    )
    checked = tuple(CheckOutcome.of(figure, check) for check in checks)
    outcome = FigureOutcome(number="14", form="emulated", runs=runs, checks=checked)
    stores = {form: OutcomeStore(tmp_path, form) for form in FORMS}
    stores["emulated"].directory.mkdir()
    stores["emulated"].picture(figure).write_text("<svg/>")
    return ReportRow(figure, {"emulated": outcome, "simulated": None}, stores)


def test_a_row_says_which_runs_are_not_trusted_and_of_which_commits(tmp_path: Path) -> None:
    row = _row(tmp_path, (at_least("share", 0.99, 0.9),), ("a" * 40, "b" * 40))
    assert (row.holds, row.notes) == ("yes", ("emulated: 1 of 2 runs trusted",))
    html = render([row])
    assert "emulated: 1 of 2 runs trusted" in html
    assert "The emulated runs are of 2 states of the project" in html
    assert f"<code>{'a' * 12}</code>" in html
    assert f"<code>{'b' * 12}+</code>" in html
    *_, line = as_markdown([row]).splitlines()
    assert line.endswith("| yes (1 of 2 runs trusted) |")


def test_runs_of_one_commit_are_not_warned_of(tmp_path: Path) -> None:
    row = _row(tmp_path, (at_least("share", 0.99, 0.9),), ("a" * 40, "a" * 40))
    html = render([row])
    assert "states of the project" not in html
    assert f"All emulated runs are of commit <code>{'a' * 12}</code>" in html


@pytest.mark.parametrize(
    ("value", "second", "holds"),
    [
        (0.99, "degraded", "yes"),
        (0.5, "degraded", "not trusted"),
        (0.5, "trusted", "no"),
        (0.99, "invalid", "not trusted"),
    ],
)
def test_only_trusted_runs_tell_that_something_does_not_hold(
    tmp_path: Path, value: float, second: State, holds: str
) -> None:
    row = _row(tmp_path, (at_least("share", value, 0.9),), ("a" * 40, "a" * 40), second)
    assert row.holds == holds


def test_a_row_whose_runs_damaged_payload_does_not_hold(tmp_path: Path) -> None:
    row = _row(tmp_path, (at_least("share", 0.99, 0.9),), ("a" * 40, "a" * 40), "trusted")
    outcome = row.outcomes["emulated"]
    assert outcome is not None
    first, second = outcome.runs
    runs = (first, second.model_copy(update={"bytes_damaged": 4096}))
    damaged = outcome.model_copy(update={"runs": runs})
    row = replace(row, outcomes={**row.outcomes, "emulated": damaged})
    assert row.holds == damaged.holds == "no"
    assert row.notes == ("emulated: its runs lost or corrupted 4,096 B of payload",)


def test_a_row_that_does_not_hold_says_why_or_that_it_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = (
        at_least("share", 0.5, 0.9),
        at_most("stall", 9.0, 5.0, "{:.0f} RTT"),
        at_most("deficit", 1.0, 5.0),
        at_least("rate", 0.4, 0.9),
    )
    (figure,) = select_figures(["14"])
    slow = "half of the links are slow"
    said = {"share": slow, "deficit": "never told", "rate": slow}
    texts = {"14": replace(figure.text, reasons=said)}
    monkeypatch.setattr("testbed.studies.paper.figure._texts", lambda: texts)
    row = _row(tmp_path, checks, ("a" * 40, "a" * 40), "trusted")
    reasons = (
        "share: 50.0% emulated; rate: 40.0% emulated. Why: half of the links are slow",
        "stall: 9 RTT emulated. Why: unknown",
    )
    assert row.holds == "no"
    assert row.notes == reasons
    html = render([row])
    assert all(reason in html for reason in reasons)
    assert "never told" not in html
    of_form = f"share: 50.0%; rate: 40.0%. Why: {slow}. stall: 9 RTT. Why: unknown"
    assert of_form in as_markdown([row])


def test_a_value_that_is_only_shown_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    checks = (at_least("share", 0.99, 0.9), shown("losses", 3, "{:.0f}"))
    html = render([_row(tmp_path, checks, ("a" * 40, "a" * 40), "trusted")])
    assert '<td class="n met">99.0%</td>' in html
    assert "share: must be ≥ 90.0%" in html
    assert '<td class="n">3</td>' in html
    assert "losses: only shown" in html


def test_what_is_told_as_equal_says_so_beside_a_figure_that_looks_ahead(tmp_path: Path) -> None:
    met = costs_less("stall", (1.0, 1.1), (1.05, 1.2), unit="RTT")
    assert met.value >= met.low
    html = render([_row(tmp_path, (met,), ("a" * 40, "a" * 40), "trusted")])
    assert f'<td class="n missed">{met.measured}<small>equal</small></td>' in html


@dataclass(frozen=True)
class Known:
    """A machine of which this load and this lateness are known at a dilation of 10,000."""

    at_full: float
    late: float = 0.0

    def load(self, scenario: Scenario) -> float:
        return self.at_full * 10_000 / scenario.topology.dilation

    def lateness(self, scenario: Scenario) -> float:
        return self.late * 10_000 / scenario.topology.dilation


@pytest.mark.parametrize("machine", [Known(3.0), Known(0.3, late=0.1)], ids=["heavy", "late"])
def test_runs_are_slowed_down_until_the_machine_carries_them(machine: Known) -> None:
    variant = VARIANTS["job-transceiver-flaps"]
    full = plan_variant(variant, "emulated")
    assert full.scenario.topology.dilation == 10_000
    slow = plan_variant(variant, "emulated", machine=machine)
    assert slow.scenario.topology.dilation == 40_000
    assert slow.load == pytest.approx(machine.at_full / 4)
    assert slow.scenario.duration == 4 * full.scenario.duration
    for one, times in ((full, 1), (slow, 4)):
        (flap,), job = one.scenario.timeline, one.scenario.workload
        assert isinstance(flap, Flap)
        assert isinstance(job, Training)
        assert (flap.at, flap.for_, flap.period) == (times * 4e9, times * 4.8e9, times * 1.6e9)
        assert job.compute == times * 1e8


@pytest.mark.parametrize(
    ("name", "dilation"),
    [("job-undisturbed", 10_000), ("job-transceiver-flaps", 20_000), ("job-fabric-flaps", 30_000)],
)
def test_where_faults_are_measured_runs_are_slowed_down_on_any_machine(
    name: str, dilation: float
) -> None:
    made = plan_variant(VARIANTS[name], "emulated", machine=Known(0.6, late=0.02))
    assert made.scenario.topology.dilation == dilation


def test_a_run_that_a_faster_machine_made_counts_if_it_can_be_trusted(tmp_path: Path) -> None:
    figures, fast, slow = (_twelve(),), Known(0.3), Known(3.0)
    (first,) = plan(figures, tmp_path, ("emulated",), machine=fast).due
    made(first, tmp_path, 1, "degraded")
    (again,) = plan(figures, tmp_path, ("emulated",), machine=slow).due
    assert again.scenario.topology.dilation == 2 * first.scenario.topology.dilation
    made(first, tmp_path, 2, "trusted")
    resumed = plan(figures, tmp_path, ("emulated",), machine=slow)
    assert not resumed.due
    ((planned,),) = resumed.runs.values()
    assert planned.scenario == first.scenario
    (anew,) = plan(figures, tmp_path, ("emulated",), machine=slow, again=True).due
    assert anew.scenario == again.scenario


def test_a_form_that_is_impossible_says_why() -> None:
    (many,) = select_figures(["16x64"])
    assert "so many hosts" in many.excluded("emulated")[0]
    assert forms_of(many, ("emulated",)) == ("simulated",)
    (failover,) = select_figures(["failover"])
    assert forms_of(failover, ("emulated", "simulated")) == ("emulated", "simulated")
    assert len(failover.variants_in("simulated")) < len(failover.variants_in("emulated"))


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("variant", FAILOVER.variants, ids=lambda variant: str(variant.name))
def test_the_dead_link_is_one_that_the_flow_uses(variant: Variant, seed: int) -> None:
    scenario = plan_variant(variant, "emulated", seed).scenario
    (fault,) = scenario.timeline
    src, dst = (scenario.topology.nodes[name] for name in ("h0", "h4"))
    evs = scenario.transport.choose_evs(scenario.topology, src, dst, lane=0, seed=seed)
    used = [ev.path for ev in evs if ev.active]
    links = {scenario.topology.fabric_link(path.plane, 0, path.t1 or 0).name for path in used}
    assert set(fault.target) <= links


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_lossy_ev_is_one_that_carries_data(seed: int) -> None:
    scenario = plan_variant(VARIANTS["lossy-ev"], "simulated", seed).scenario
    (fault,) = scenario.timeline
    assert isinstance(fault, EvLoss)
    src, dst = (scenario.topology.nodes[name] for name in ("h0", "h2"))
    evs = scenario.transport.choose_evs(scenario.topology, src, dst, lane=0, seed=seed)
    of_plane = [ev for ev in evs if ev.path.plane == 0]
    assert fault.path in {ev.path.name for ev in of_plane if ev.active}
    assert sum(ev.active for ev in of_plane) == 1
    assert len(of_plane) == 2, "its partner stands by"


MAX_PACKET_HOPS = 55e6
"""Packet-hops of all simulated runs of a figure together, with one seed, at most."""


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_a_simulated_figure_stays_within_its_packet_hops(figure: PaperFigure) -> None:
    variants = figure.variants_in("simulated")
    hops = sum(plan_variant(variant, "simulated").packet_hops for variant in variants)
    assert hops <= MAX_PACKET_HOPS


def test_the_fullest_link_of_64_hosts_is_shared_by_as_many_as_the_row_says() -> None:
    (figure,) = select_figures(["16x64"])
    roce = next(variant for variant in figure.variants if variant.name == "allreduce-64-roce-1")
    fullest = []
    for seed in range(1, 6):
        scenario = plan_variant(roce, "simulated", seed).scenario
        topology, sharing = scenario.topology, Counter[str]()
        for flow in flows_of(scenario):
            (ev,) = scenario.transport.choose_evs(
                topology, flow.src, flow.dst, lane=flow.lane, seed=scenario.seed
            )
            sharing[f"from rack {topology.rack(flow.src)} to T1 {ev.path.t1}"] += 1
            sharing[f"from T1 {ev.path.t1} to rack {topology.rack(flow.dst)}"] += 1
        fullest.append(max(sharing.values()))
    reason = figure.reason("RoCE with 1 QP, of MRC's rate")
    assert f"puts {min(fullest)} to {max(fullest)} of a rack's 8 flows;" in reason


@pytest.mark.parametrize(
    ("evs", "least", "most"),
    [(128, 0.92, 0.96), (512, 0.96, 0.98), (1024, 0.97, 0.985), (4096, 0.98, 0.995)],
)
@pytest.mark.parametrize("seed", range(1, 6))
def test_hashed_evs_carry_as_much_as_the_document_says(
    evs: int, least: float, most: float, seed: int
) -> None:
    """What is left of the load of a rack's uplinks if what is too much for one is lost."""
    scenario = plan_variant(VARIANTS["hash-ecmp-ecmp"], "simulated", seed).scenario
    assert isinstance(scenario.transport, Mrc)
    transport = scenario.transport.model_copy(update={"evs": evs})
    topology = scenario.topology
    load: dict[tuple[int, str], float] = defaultdict(float)
    for flow in flows_of(scenario):
        chosen = transport.choose_evs(topology, flow.src, flow.dst, lane=0, seed=seed)
        active = [ev.path.name for ev in chosen if ev.active]
        for path in active:  # in units of a port's rate
            load[topology.rack(flow.src), path] += topology.planes / len(active)
    carried = sum(min(each, 1) for each in load.values()) / sum(load.values())
    assert least <= carried <= most
