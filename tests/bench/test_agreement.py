"""What is compared of the two fabrics, and how it is told."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from testbed.emulation.experiment.machine import Capacity
from testbed.model.errors import RunFailedError
from testbed.model.faults.kinds import Blackhole
from testbed.model.scenario import Scenario
from testbed.studies.bench import agreement, device
from testbed.studies.bench.agreement import Compared, RunFigures, scenarios, table
from testbed.studies.bench.measure import Setting
from testbed.studies.bench.runs import at_fitting_dilation

if TYPE_CHECKING:
    from testbed.runs.result import Result

US = 1_000


def _compared(emulated: RunFigures, simulated: RunFigures) -> Compared:
    return Compared("cut", 12_000, emulated, simulated, tries=2)


def test_figures_differ_by_their_share() -> None:
    one = _compared(RunFigures(0.9, 4.0, "trusted"), RunFigures(0.99, 3.0, "trusted"))
    assert one.judged
    assert round(one.goodput_off, 3) == 0.1
    assert one.recovery_off == 0.25


def test_what_both_recover_from_at_once_agrees() -> None:
    one = _compared(RunFigures(1.0, 0.1, "trusted"), RunFigures(1.0, 0.0, "trusted"))
    assert one.recovery_off is not None
    assert one.recovery_off <= 0.1


def test_what_neither_recovers_from_agrees_and_what_one_does_does_not() -> None:
    neither = _compared(RunFigures(1.0, math.inf, "trusted"), RunFigures(1.0, math.inf, "trusted"))
    assert neither.recovery_off == 0
    assert "| never | never | 0% |" in table([neither])
    one = _compared(RunFigures(1.0, math.inf, "trusted"), RunFigures(1.0, 3.0, "trusted"))
    assert one.recovery_off == 1.0


def test_an_invalid_run_is_told_and_not_judged() -> None:
    one = _compared(RunFigures(0.5, None, "invalid"), RunFigures(1.0, None, "trusted"))
    assert not one.judged
    assert one.recovery_off is None
    (row,) = table([one]).splitlines()[2:]
    assert row.startswith("| cut | 12000 | 0.500 | 1.000 | 100% |")
    assert "invalid, the best of 2" in row


def test_a_scenario_is_as_many_round_trips_long_at_the_dilation_that_is_carried() -> None:
    slow = Capacity(endpoint_ns=400 * US, link_ns=20 * US, cpus=2)
    quick = Capacity(endpoint_ns=4 * US, link_ns=1 * US, cpus=2)
    whole = next(
        scenario for scenario in scenarios() if scenario.name == "agreement-permutation-blackhole"
    )
    assert at_fitting_dilation(whole, quick) == whole
    slower = at_fitting_dilation(whole, slow)
    factor = slower.topology.dilation / whole.topology.dilation
    assert factor > 2
    assert slow.load(slower) < 0.7
    assert slower.duration == round(whole.duration * factor)
    (fault,), (told,) = whole.timeline, slower.timeline
    assert isinstance(fault, Blackhole)
    assert isinstance(told, Blackhole)
    assert (told.at, told.for_) == (round(fault.at * factor), round(fault.for_ * factor))
    assert told.target == fault.target


def test_every_round_is_a_sample_of_its_scenario(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """But an invalid run; the table has all."""
    figures = [
        RunFigures(0.8, 4.0, "trusted"),
        RunFigures(0.5, 4.0, "invalid"),
        RunFigures(1.0, 2.0, "trusted"),
    ]
    emulated = iter(figures)

    def compare(_: Setting) -> list[Compared]:
        return [Compared("one", 1, next(emulated), RunFigures(1.0, 2.0, "trusted"), 1)]

    monkeypatch.setattr(agreement, "_compare", compare)
    pairs = iter([(4.0, 5.0), (4.0, 4.0), (4.0, 3.0)])

    def compare_programs(_: Setting) -> tuple[dict[str, float], dict[str, float]]:
        here, there = next(pairs)
        return {"ib_write_bw": here, "detection": 0.2}, {"ib_write_bw": there, "detection": 0.3}

    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/ib_write_bw")
    monkeypatch.setattr(device, "_compare", compare_programs)
    valid, goodput, recovery, *seen = agreement.agreement(Setting(3, tmp_path, lambda _: None))
    assert [figure.samples for figure in seen[:2]] == [(0.2, 0.0, 0.25), ()]
    assert seen[2].samples == pytest.approx([0.1] * 3)  # of a round trip
    assert [figure.samples for figure in seen[3:]] == [(), ()]
    assert valid.samples == (1, 0, 1)
    assert goodput.samples == (0.25, 0.0)
    assert recovery.samples == (0.5, 0.0)
    text = (tmp_path / "bench" / agreement.TABLE).read_text()
    of_scenarios, _, of_programs = text.partition("\n\n")
    assert len(of_scenarios.splitlines()[2:]) == len(figures)
    row = "| ib_write_bw, MB/s | 4 (4 to 4) | 4 (3 to 5) | 1 (0.75 to 1.25) |"
    assert row in of_programs.splitlines()


def test_what_no_round_could_measure_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without perftest, or where the machine was too busy each time."""
    setting = Setting(2, tmp_path, lambda _: None)
    rates = iter([(2000.0, 1500.0), None, None, None])
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/ib_write_bw")
    monkeypatch.setattr(device, "_rates", lambda *_: next(rates))
    monkeypatch.setattr(device, "calibrate", lambda _: Capacity(400 * US, 20 * US, 2))
    monkeypatch.setattr(device, "measured", lambda: Capacity(400 * US, 0, 1))
    share, *each = device.device_rate(setting)
    assert share.holds
    assert [figure.samples for figure in (share, *each)] == [(0.75,), (2000.0,), (1500.0,)]
    (share,) = device.device_rate(setting)
    assert "invalid" in share.missing
    monkeypatch.setattr("shutil.which", lambda _: None)
    (share,) = device.device_rate(setting)
    seen, _ = device.seen(setting)
    reasons = {figure.missing for figure in (share, *seen)}
    assert reasons == {"no ib_write_bw here: apt install perftest"}
    assert len(seen) == 5


@pytest.mark.parametrize("scenario", list(device.programs()), ids=lambda each: each.name)
def test_the_programs_figure_is_found_in_what_it_prints(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    row = " 65536      800              4.37               4.36               4.35\n"
    (tmp_path / "programs" / "h0.log").write_text(row, encoding="utf-8")
    summary = SimpleNamespace(scenario=scenario.name, faults=())
    run = SimpleNamespace(summary=summary, directory=tmp_path)
    (found,) = device.figures_of(cast("Result", run)).items()
    assert found in (("ib_write_bw", 4.36), ("ib_write_lat", 4.35))


def test_a_program_without_a_result_is_named_with_what_it_printed() -> None:
    with pytest.raises(RunFailedError, match="ib_write_lat has no result: no device"):
        device.figure_of("ib_write_lat", "no device")
