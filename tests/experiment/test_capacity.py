"""A scenario that a machine does not carry is named before it runs, with what would fit."""

import json
import os
import pwd
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import fast
from testbed.emulation.experiment.machine import (
    TARGET_LOAD,
    WARN_LOAD,
    Capacity,
    judge_load,
    load_capacity,
    save_capacity,
)
from testbed.model.errors import ExitStatus, MachineError
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from tests.commands import TESTBED, Completed, completed

MEASURED = Capacity(endpoint_ns=60_000, link_ns=5_000, cpus=2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, whoever runs it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    return tmp_path


def _answer(*arguments: str | Path) -> Completed:
    return completed([TESTBED, *arguments], env=os.environ | {"NO_COLOR": "1"})


def _permutation(**topology: Any) -> Scenario:
    scenario = load_scenario("permutation")
    return scenario.model_copy(update={"topology": scenario.topology.model_copy(update=topology)})


def test_the_load_is_packets_times_what_each_costs() -> None:
    """8 flows of 4 x 10 Mbit/s in packets of 4242 bytes, over four links each."""
    packets_per_s = 8 * 40e6 / (8 * _permutation().topology.wire_bytes)
    expected = packets_per_s * (60e-6 + 4 * 5e-6) / 2
    assert MEASURED.load(_permutation()) == pytest.approx(expected)
    assert MEASURED.load(_permutation(dilation=20_000.0)) == pytest.approx(expected / 2)


def test_queue_pairs_beyond_the_first_cost_their_ticks() -> None:
    """16 lanes of which each sends a sixteenth: 40 looks at 15 more in a round trip of 131 ms."""
    one, many = (_permutation().model_copy(update={"transport": Mrc(qps=qps)}) for qps in (1, 16))
    ticks_per_s = 40 * 1e9 / one.topology.propagation_rtt_ns
    polling = 8 * 15 * ticks_per_s * 0.02 * 60e-6 / 2
    assert MEASURED.load(many) - MEASURED.load(one) == pytest.approx(polling)
    assert polling > 0.01


def test_an_endpoint_has_no_more_than_one_cpu() -> None:
    """Two hosts on many CPUs: what counts is the share of its own that each needs."""
    many = replace(MEASURED, cpus=64)
    pair = load_scenario("link-failure")
    packets_per_s = 2 * 40e6 / (8 * pair.topology.wire_bytes)
    assert many.load(pair) == pytest.approx(packets_per_s * 30e-6)


def test_the_dilation_that_is_found_fits_and_no_smaller_one_does() -> None:
    fitting = MEASURED.fitting_dilation(_permutation())
    assert fitting % 100 == 0
    assert MEASURED.load(_permutation(dilation=float(fitting))) <= TARGET_LOAD
    assert MEASURED.load(_permutation(dilation=float(fitting - 100))) > TARGET_LOAD
    assert MEASURED.fitting_dilation(_permutation(dilation=1_000.0)) == fitting


def test_late_event_loops_need_long_round_trips() -> None:
    """2 ms late may be 5% of a round trip: one of 40 ms, 13.08 us at full speed."""
    late = replace(MEASURED, endpoint_ns=100, link_ns=0, lag_ns=2e6)
    assert late.fitting_dilation(_permutation()) == 3_100


def test_delays_that_timers_cannot_make_are_warned_of_or_refused() -> None:
    """At full speed a round trip is 13.08 us: no timer of a kernel and no Python is as quick."""
    late = replace(MEASURED, endpoint_ns=1, link_ns=0, lag_ns=2e6)
    warning = judge_load(_permutation(dilation=2_000.0), late, force=False)
    assert warning is not None
    assert "late by 7.65% of a round trip of 26.2 ms" in warning
    assert "dilation: 3100 would fit" in warning
    with pytest.raises(MachineError, match="timers are late by 153% of a round trip"):
        judge_load(_permutation(dilation=100.0), late, force=False)
    assert judge_load(_permutation(dilation=3_100.0), late, force=False) is None


def test_packets_within_a_rack_cross_half_the_links() -> None:
    across = load_scenario("permutation")
    pairs = (("h0", "h1"), ("h2", "h3"), ("h4", "h5"), ("h6", "h7"))
    within = across.model_copy(
        update={"workload": across.workloads["workload"].model_copy(update={"pairs": pairs})}
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
    assert "8 flows take about 94.4%" in warning
    advised = int(warning.rpartition("dilation: ")[2].split()[0])
    assert MEASURED.load(_permutation(dilation=float(advised))) <= TARGET_LOAD
    assert MEASURED.load(_permutation(dilation=float(advised))) == pytest.approx(
        TARGET_LOAD, rel=0.03
    )


def test_what_is_aimed_at_is_not_warned_of_where_a_packet_costs_somewhat_more() -> None:
    """The same machine measures a packet's cost 15% higher at another moment."""
    fitting = float(MEASURED.fitting_dilation(_permutation()))
    busier = replace(MEASURED, endpoint_ns=69_000, link_ns=5_750)
    assert TARGET_LOAD * 1.15 < WARN_LOAD
    assert judge_load(_permutation(dilation=fitting), busier, force=False) is None


@pytest.mark.parametrize("name", ["permutation", "permutation-roce", "allreduce", "alltoall"])
def test_what_loads_every_host_is_run_at_a_dilation_that_the_machine_carries(name: str) -> None:
    slow = replace(MEASURED, endpoint_ns=150_000, link_ns=15_000)
    assert slow.load(load_scenario(name)) > WARN_LOAD
    scenario = load_scenario(name, slow.fitting_dilation)
    assert slow.load(scenario) == pytest.approx(TARGET_LOAD, rel=0.02)


def test_far_too_much_is_refused_unless_forced() -> None:
    scenario = _permutation(dilation=1_000.0)
    with pytest.raises(MachineError, match="8 flows take about 37") as refused:
        judge_load(scenario, MEASURED, force=False)
    assert "1 of them would fit" in refused.value.remedy
    assert judge_load(scenario, MEASURED, force=True) is not None


def test_what_is_beyond_all_bounds_is_told_in_times() -> None:
    """At full speed, where not even one flow of eight fits."""
    with pytest.raises(MachineError, match="8 flows take about 3,775 times") as many:
        judge_load(_permutation(dilation=1.0), MEASURED, force=False)
    fitting = MEASURED.fitting_dilation(_permutation())
    assert many.value.remedy.startswith(f"dilation: {fitting} would fit (auto finds it);")
    late = replace(MEASURED, endpoint_ns=0, link_ns=0, lag_ns=2e6)
    with pytest.raises(MachineError, match="late by 153 times a round trip of"):
        judge_load(_permutation(dilation=1.0), late, force=False)


def test_one_flow_too_many_is_not_told_that_one_would_fit() -> None:
    scenario = _permutation(dilation=200.0)
    one_way = {"pairs": (("h0", "h4"),), "bidirectional": False}
    one = scenario.model_copy(
        update={"workload": scenario.workloads["workload"].model_copy(update=one_way)}
    )
    with pytest.raises(MachineError, match="its only flow takes about") as refused:
        judge_load(one, MEASURED, force=False)
    assert "of them" not in refused.value.remedy


def test_what_was_measured_is_kept_in_the_cache_and_nowhere_else(cache: Path) -> None:
    assert load_capacity() is None
    place = save_capacity(MEASURED)
    assert place.is_relative_to(cache)
    assert load_capacity() == MEASURED
    assert [file for file in cache.rglob("*") if file.is_file()] == [place]


def test_another_build_of_the_core_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    save_capacity(MEASURED)
    other = not fast.is_built()
    monkeypatch.setattr("testbed.fast.is_built", lambda: other)
    assert load_capacity() is None


@pytest.mark.root
def test_under_sudo_it_is_the_callers(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Whose home is asked of the password file, and whose the files become."""
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    nobody = pwd.getpwuid(65534)
    entry = pwd.struct_passwd((*nobody[:5], str(cache / "home"), *nobody[6:]))
    monkeypatch.setattr("pwd.getpwuid", lambda _: entry)
    (cache / "home").mkdir()
    os.chown(cache / "home", 65534, 65534)
    place = save_capacity(MEASURED)
    assert place.parent == cache / "home/.cache/mrc-testbed"
    for one in (place, place.parent, place.parent.parent):
        assert one.stat().st_uid == 65534


def test_run_refuses_before_it_makes_anything(tmp_path: Path) -> None:
    save_capacity(Capacity(endpoint_ns=1_000_000, link_ns=100_000, cpus=2))
    results = tmp_path / "results"
    at_10000 = ("--set", "topology.dilation=10000")
    done = _answer("run", "permutation", *at_10000, "--results", results)
    assert done.returncode == ExitStatus.MACHINE_CANNOT
    assert "8 flows take about" in done.stderr
    assert "--force" in done.stderr
    assert not results.exists()


def test_what_is_kept_is_of_the_cpus_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is given another number of them measures again."""
    save_capacity(MEASURED)
    assert load_capacity() == MEASURED
    others = set(range(len(os.sched_getaffinity(0)) + 1))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: others)
    assert load_capacity() is None


AUTO = """\
name: auto
topology: {base: clos-tiny, dilation: auto}
duration: 10 s
workload: {pairs: [[h0, h1]]}
"""


def test_validate_says_which_dilation_auto_is(tmp_path: Path) -> None:
    file = tmp_path / "auto.yaml"
    file.write_text(AUTO)
    unknown = _answer("validate", file)
    assert "dilation: auto, chosen by the first run; 10000 is assumed above" in unknown.stdout
    save_capacity(MEASURED)
    fitting = MEASURED.fitting_dilation(load_scenario(str(file)))
    assert f"dilation: auto, {fitting} on this machine" in _answer("validate", file).stdout


@pytest.mark.root
@pytest.mark.e2e
def test_the_first_run_measures_and_takes_the_dilation_from_it(tmp_path: Path, cache: Path) -> None:
    """And what it measures is plausible."""
    file = tmp_path / "auto.yaml"
    file.write_text(AUTO.replace("10 s", "1 s"))
    done = _answer("run", file, "--results", tmp_path / "results", "--json", "--no-figures")
    assert "measuring what this machine carries" in done.stderr
    assert list(cache.rglob("capacity-*.json"))
    found = load_capacity()
    assert found is not None
    assert found.cpus == len(os.sched_getaffinity(0))
    assert found.endpoint_ns > 5_000
    assert found.link_ns > 0
    assert found.lag_ns > 0
    (manifest,) = (tmp_path / "results/auto").glob("2*/manifest.json")
    recorded = json.loads(manifest.read_text())
    fitting = found.fitting_dilation(load_scenario(str(file)))
    assert recorded["scenario"]["topology"]["dilation"] == fitting
    assert recorded["capacity"]["endpoint_ns"] == found.endpoint_ns
    again = _answer("validate", file)
    assert f"auto, {fitting} on this machine" in again.stdout
