"""A scenario that a machine does not carry is named before it runs, with what would fit."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.experiment.capacity import Capacity, calibrate, judge_load, keep, kept
from testbed.loading import load_scenario
from testbed.model.errors import ExitStatus, MachineError
from testbed.model.scenario import Scenario

MEASURED = Capacity(endpoint_ns=60_000, link_ns=5_000, cpus=2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, whoever runs it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    return tmp_path


def _permutation(**topology: Any) -> Scenario:
    scenario = load_scenario("permutation")
    return scenario.model_copy(update={"topology": scenario.topology.model_copy(update=topology)})


def test_the_load_is_packets_times_what_each_costs() -> None:
    """8 flows of 4 x 10 Mbit/s in packets of 4242 bytes, over four links each."""
    packets_per_s = 8 * 40e6 / (8 * _permutation().topology.wire_bytes)
    expected = packets_per_s * (60e-6 + 4 * 5e-6) / 2
    assert MEASURED.load(_permutation()) == pytest.approx(expected)
    assert MEASURED.load(_permutation(dilation=20_000.0)) == pytest.approx(expected / 2)


def test_packets_within_a_rack_cross_half_the_links() -> None:
    across = load_scenario("permutation")
    pairs = (("h0", "h1"), ("h2", "h3"), ("h4", "h5"), ("h6", "h7"))
    within = across.model_copy(
        update={"workload": across.workload.model_copy(update={"pairs": pairs})}
    )
    only_links = replace(MEASURED, endpoint_ns=0)
    assert only_links.load(within) == pytest.approx(only_links.load(across) / 2)


def test_what_fits_passes_without_a_word() -> None:
    assert judge_load(_permutation(), MEASURED, force=False) is None


def test_much_is_warned_of_and_what_is_advised_fits() -> None:
    scenario = _permutation(dilation=4_000.0)
    assert 0.7 < MEASURED.load(scenario) < 1.5
    warning = judge_load(scenario, MEASURED, force=False)
    assert warning is not None
    assert "8 flows take about 94%" in warning
    advised = int(warning.rpartition("dilation: ")[2])
    assert MEASURED.load(_permutation(dilation=float(advised))) <= 0.7
    assert MEASURED.load(_permutation(dilation=float(advised))) == pytest.approx(0.7, rel=0.03)


def test_far_too_much_is_refused_unless_forced() -> None:
    scenario = _permutation(dilation=1_000.0)
    with pytest.raises(MachineError, match="8 flows take about 37") as refused:
        judge_load(scenario, MEASURED, force=False)
    assert "1 of them would fit" in refused.value.remedy
    assert judge_load(scenario, MEASURED, force=True) is not None


def test_what_was_measured_is_kept_in_the_cache_and_nowhere_else(cache: Path) -> None:
    assert kept() is None
    place = keep(MEASURED)
    assert place.is_relative_to(cache)
    assert kept() == MEASURED
    assert [one for one in cache.rglob("*") if one.is_file()] == [place]


@pytest.mark.root
def test_under_sudo_it_is_the_callers(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Whose home is asked of the password file, and whose the files become."""
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    monkeypatch.setattr(
        "pwd.getpwuid", lambda _: type("Entry", (), {"pw_dir": str(cache / "home")})
    )
    (cache / "home").mkdir()
    place = keep(MEASURED)
    assert place.parent == cache / "home/.cache/mrc-testbed"
    for one in (place, place.parent, place.parent.parent):
        assert one.stat().st_uid == 65534
    assert (cache / "home").stat().st_uid == 0


def test_run_refuses_before_it_makes_anything(tmp_path: Path) -> None:
    keep(Capacity(endpoint_ns=1_000_000, link_ns=100_000, cpus=2))
    results = tmp_path / "results"
    done = subprocess.run(
        [Path(sys.executable).with_name("testbed"), "run", "permutation", "--results", results],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert done.returncode == ExitStatus.MACHINE_CANNOT
    assert "8 flows take about" in done.stderr
    assert "--force" in done.stderr
    assert not results.exists()


@pytest.mark.root
@pytest.mark.e2e
def test_measuring_finds_a_plausible_cost() -> None:
    measured = calibrate(lambda _what, _done: None)
    assert measured.cpus == os.cpu_count()
    assert 5_000 < measured.endpoint_ns < 1_000_000
    assert 0 <= measured.link_ns < 200_000
