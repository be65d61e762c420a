"""htsim's cases: how they are read, which are compared, and what each simulator is given."""

import math
from collections import Counter
from pathlib import Path

import pytest

from testbed.model.errors import InputError, RunFailedError
from testbed.model.faults.kinds import Degrade
from testbed.model.transport import Mrc
from testbed.studies.bench import htsim
from testbed.studies.bench.htsim import (
    PROGRAM,
    Case,
    Compared,
    cases,
    figures,
    run_case,
    scenario_of,
    slowest_us,
    table,
)
from testbed.studies.bench.measure import Setting

from .test_htsim import program

MATRIX = "Nodes 16\nConnections 2\n0->9 id 1 start 0 size 200000\n1->8 id 2 start 0 size 100000\n"
PLAN = """\
# a remark
connection_matrices/two.cm
!Experiment Two flows.
!Binary ./htsim_uec
!Param -sender_cc_only
!Param -end 1000
!Param -failed 1
!tailFCT 190
connection_matrices/two.cm
!Experiment Credits
!Param -end 1000
connection_matrices/two.cm
!Experiment Both
!Binary ./htsim_uec
!Param -sender_cc
!Param -receiver_cc
connection_matrices/two.cm
!Experiment Without trimming
!Binary ./htsim_uec
!Param -sender_cc_only
!Param -sleek
connection_matrices/two.cm
!Experiment Their fabric
!Binary ./htsim_uec
!Param -paths 1
!Param -q 500
!Param -topo topologies/small.topo
!tailFCT 880
"""
TOPO = """\
Nodes 16
Tiers 2
Podsize 16
Tier 0
Downlink_speed_Gbps 100
Radix_Down 8
Radix_Up 2
Oversubscribed 4
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 2
Downlink_Latency_ns 1000
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    datacenter = tmp_path / "htsim/sim/datacenter"
    for name, text in {
        "validate_some.txt": PLAN,
        "connection_matrices/two.cm": MATRIX,
        "topologies/small.topo": TOPO,
    }.items():
        file = datacenter / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_cases_are_read_with_their_parameters(checkout: Path) -> None:
    first, credits_, both, sleek, theirs = cases(checkout)
    assert first.name == "some: Two flows (two)"
    assert first.parameters == {"-sender_cc_only": "", "-end": "1000", "-failed": "1"}
    assert first.bound_us == 190
    assert [case.left_out for case in (first, credits_, both, sleek, theirs)] == [
        "",
        "another program: htsim_eqds",
        "the receiver controls the rate",
        "SLEEK: recovery without trimming",
        "",
    ]
    with pytest.raises(InputError, match="a checkout of uet-htsim, with its"):
        cases(checkout / "htsim/sim/datacenter/topologies")


def test_a_case_is_a_scenario_on_a_leaf_spine_fabric(checkout: Path) -> None:
    first, *_, theirs = cases(checkout)
    scenario = scenario_of(first)
    topology = scenario.topology
    shape = topology.t0_per_plane, topology.t1_per_plane, topology.hosts_per_t0
    assert shape == (4, 4, 4)
    assert topology.one_way_ns(3) == 4_000
    (fault,) = scenario.timeline
    assert isinstance(fault, Degrade)
    assert fault.target == ("p0_t1_0",)
    assert fault.factor == 0.25
    bdp = 29 * 4150
    assert topology.queue.last_hop.model_dump() == topology.queue.t0_up.model_dump()
    assert topology.queue.t0_up.trim is not None
    assert topology.queue.t0_up.trim.in_bytes(0) == bdp
    assert topology.queue.t0_up.ecn is not None
    assert topology.queue.t0_up.ecn.min.in_bytes(0) == 6 * 4150
    own = scenario_of(theirs)
    assert (own.topology.t1_per_plane, own.topology.hosts_per_t0) == (2, 8)
    assert own.topology.queue.t1_down.trim is not None
    assert own.topology.queue.t1_down.trim.in_bytes(0) == 500 * 4150
    assert isinstance(own.transport, Mrc)
    assert own.transport.evs == 1


@pytest.mark.parametrize(
    ("line", "changed", "message"),
    [
        (
            "!tailFCT 190",
            "!tailFCT soon",
            "validate_.*: Two flows: tailFCT: found soon, expected a w",
        ),
        (
            "!Param -end 1000",
            "!Param -end 1e3",
            "Two flows .*: -end: found 1e3, expected a whole n",
        ),
        ("!Param -failed 1", "!Param -failed 999999999", "-failed: found 999999999, expected 4 at"),
    ],
)
def test_a_wrong_number_of_a_case_is_named(
    checkout: Path, line: str, changed: str, message: str
) -> None:
    (file,) = checkout.rglob("validate*.txt")
    file.write_text(file.read_text().replace(line, changed, 1))
    with pytest.raises(InputError, match=message):
        scenario_of(cases(checkout)[0])


def test_the_slowest_flow_is_that_whose_last_acknowledgement_comes_last(checkout: Path) -> None:
    """Two flows that do not meet: the longer takes 200 kB at line rate and a round trip."""
    us = slowest_us(scenario_of(cases(checkout)[0]))
    least = 200_000 * 8 / 100e3 + 8
    assert least < us < 1.5 * least


def test_what_does_not_finish_in_time_never_does(checkout: Path) -> None:
    case = cases(checkout)[0]
    case.parameters["-end"] = "10"
    assert slowest_us(scenario_of(case)) == math.inf


def test_htsim_gets_the_same_fabric_and_matrix(checkout: Path) -> None:
    case = cases(checkout)[0]
    seen = checkout / "seen"
    lines = "\n".join(
        f"echo 'Flow Uec_{i}_0 flowId {i} uecSrc 0 finished at {20 - i}.5 x'" for i in (0, 1)
    )
    script = f'sleep 0.1; echo "$@" > {seen}; cat *.topo >> {seen}\n{lines}'
    place = checkout / "built"
    place.mkdir()
    assert run_case(program(place, script), case, scenario_of(case).topology) == 20.5
    given = seen.read_text()
    assert f"-tm {case.matrix} -sender_cc_only -end 1000 -failed 1 -topo" in given
    assert "Radix_Down 4\nRadix_Up 4\n" in given


def test_what_htsim_does_not_finish_or_fails_at(checkout: Path) -> None:
    case = cases(checkout)[0]
    topology = scenario_of(case).topology
    for number, script in enumerate(("echo 'Flow a flowId 1 finished at 1.0 x'", "exit 1")):
        place = checkout / f"built{number}"
        place.mkdir()
        made = program(place, script)
        if number:
            with pytest.raises(RunFailedError, match="htsim ended with 1"):
                run_case(made, case, topology)
        else:
            assert run_case(made, case, topology) == math.inf


def test_every_case_is_compared_or_left_out_for_a_reason(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = "\n".join(f"echo 'Flow a flowId {i} finished at 25.0 x'" for i in (0, 1))
    (checkout / "built").mkdir()
    program(checkout / "built", lines)
    monkeypatch.setattr(htsim, "in_new_process", lambda measure, given: measure(given))
    setting = Setting(1, tmp_path / "results", lambda _: None, checkout)
    found = {figure.name: figure for figure in htsim.htsim_validate(setting)}
    assert found["some: Two flows (two): htsim"].samples == (25.0,)
    assert found["left out: another program: htsim_eqds"].samples == (1,)
    file = checkout / "htsim/sim/datacenter/validate_some.txt"
    assert file.read_text().count("!Experiment") == sum(
        figure.samples[0] for name, figure in found.items() if name.startswith("left out")
    ) + sum(name.endswith(": htsim") for name in found)
    text = (tmp_path / "results/bench" / htsim.TABLE).read_text()
    assert text.count("| some: ") == 2
    assert text.rstrip().endswith("| SLEEK: recovery without trimming | 1 |")


def test_a_bound_of_htsims_counts_on_its_own_fabric_only() -> None:
    def compared(ours: float, **parameters: str) -> Compared:
        given = {f"-{key}": value for key, value in parameters.items()}
        case = Case("some: x", PROGRAM, Path("x.cm"), given, 190)
        return case, 150.0, ours

    _, ours, ratio = figures([compared(200.0)])
    assert (ours.target, ratio.holds) == ("", False)
    _, ours, ratio = figures([compared(150.0, topo="x.topo")])
    assert (ours.holds, ratio.holds, ours.at_most) == (True, True, 190)
    shown = table([compared(150.0)], Counter({"SLEEK": 3}))
    assert "| some: x | 150.0 | 150.0 | 1.00 | 190 |" in shown
    assert "| SLEEK | 3 |" in shown
