import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from testbed.model.checks import buffer_bytes, problems, remarks
from testbed.model.errors import did_you_mean
from testbed.model.fabric.names import link_named, node_named
from testbed.model.fabric.topology import Topology
from testbed.model.files.goal import read_goal
from testbed.model.scenario import Expect, Scenario

from .fabrics import ODD, REAL, topologies

CLOS = Topology(name="clos", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)
ONE = Topology(name="one", planes=1, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1)
LINK = "p0_t0_0--p0_t1_1"


def _fault(target: str = LINK, at: str = "4 s", lasting: str = "3 s") -> dict[str, str]:
    return {"kind": "blackhole", "target": target, "at": at, "for": lasting}


def _scenario(
    *faults: Mapping[str, object],
    pairs: list[list[str]] | None = None,
    topology: Topology = CLOS,
    transport: dict[str, Any] | None = None,
    **workload: object,
) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "x",
            "topology": topology,
            "workload": {"pairs": pairs or [["h0", "h4"]], **workload},
            "transport": transport or {},
            "timeline": faults,
        }
    )


def _remarks(scenario: Scenario) -> dict[str, str]:
    return {remark.where: remark.what for remark in remarks(scenario)}


@given(topologies())
def test_names_are_found_without_building_the_fabric(topology: Topology) -> None:
    for name, node in topology.nodes.items():
        assert node_named(topology, name) == node
    for name, link in topology.links.items():
        assert link_named(topology, name) == link
    hosts, t1s = len(topology.hosts), topology.t1_per_plane
    for name in (f"h{hosts}", f"p0_t1_{t1s}", f"p{topology.planes}_t0_0", "h00", "h" + "9" * 5000):
        assert node_named(topology, name) is None
    for name in ("h0--p0_t1_0", "p0_t0_0", "p0_t1_0--p0_t0_0", "h0--p0_t0_0--p0_t1_0", ""):
        assert link_named(topology, name) is None


def test_a_link_needs_both_its_ends_in_one_rack_and_plane() -> None:
    assert link_named(CLOS, "h0--p0_t0_1") is None
    assert link_named(CLOS, "p0_t0_0--p1_t1_0") is None


def test_a_right_scenario_has_neither_problems_nor_remarks() -> None:
    scenario = _scenario(_fault())
    assert problems(scenario) == ()
    assert remarks(scenario) == ()


@pytest.mark.parametrize(
    ("pairs", "where", "found", "remedy"),
    [
        ([["h0", "h8"]], "workload.pairs[0][1]", "h8", ""),
        ([["h1", "h5"], ["x", "h4"]], "workload.pairs[1][0]", "x", ""),
        ([["p0_t0_0", "h4"]], "workload.pairs[0][0]", "p0_t0_0", "host below it"),
        ([["h3", "h3"]], "workload.pairs[0]", "h3 with itself", ""),
        (
            [["h0", "h4"], ["h0", "h4"]],
            "workload.pairs[1]",
            "h0 and h4 a second time",
            "remove one",
        ),
        (
            [["h0", "h4"], ["h4", "h0"]],
            "workload.pairs[1]",
            "h4 and h0 a second time",
            "remove one",
        ),
    ],
)
def test_wrong_pairs(pairs: list[list[str]], where: str, found: str, remedy: str) -> None:
    (problem,) = problems(_scenario(pairs=pairs))
    assert (problem.where, problem.found) == (where, found)
    assert problem.expected
    assert remedy in problem.remedy


def test_a_pair_each_way_is_no_repeat_where_flows_go_one_way() -> None:
    assert problems(_scenario(pairs=[["h0", "h4"], ["h4", "h0"]], bidirectional=False)) == ()


@pytest.mark.parametrize(
    ("fault", "where", "remedy"),
    [
        (_fault("p0_t0_0--p0_t1_7"), "target", "did you mean p0_t0_0--p0_t1_"),
        (_fault("p0_t0_0--p0_t1l_1"), "target", f"did you mean {LINK}?"),
        (_fault("P0_T0_0--P0_T1_1"), "target", f"did you mean {LINK}?"),
        (_fault("p0_t1_1--p0_t0_0"), "target", f"comes first: {LINK}"),
        (_fault("p0_t0_0-p0_t1_1"), "target", f"did you mean {LINK}?"),
        (_fault("p0_t1_4"), "target", "did you mean p0_t1_"),
        (_fault(at="10 s"), "at", "longer duration"),
        (_fault(at="8 s"), "for", "2 s at most"),
    ],
)
def test_wrong_faults(fault: dict[str, str], where: str, remedy: str) -> None:
    (problem,) = problems(_scenario(_fault("h0--p0_t0_0", "1 s", "1 s"), fault))
    assert problem.where == f"timeline[1].{where}"
    assert remedy in problem.remedy


def test_faults_of_a_kind_on_one_link_may_not_overlap() -> None:
    (problem,) = problems(_scenario(_fault(at="4 s"), _fault(at="3 s", lasting="2 s")))
    assert problem.where == "timeline[0].at"
    assert "after timeline[1] is over" in problem.expected
    assert "5 s" in problem.expected
    whole = problems(_scenario(_fault(at="4 s"), _fault("p0_t1_1", at="5 s", lasting="1 s")))
    assert [one.where for one in whole] == ["timeline[1].at"], "its switch is the same link"
    assert problems(_scenario(_fault(), _fault() | {"kind": "loss", "probability": 0.1})) == ()
    other = _fault("p0_t0_0--p0_t1_2")
    assert problems(_scenario(_fault(), other, _fault(at="7.5 s", lasting="1 s"))) == ()


def test_losses_on_two_paths_may_not_meet_even_by_chance() -> None:
    """Of one path they add up; a link has room for one path only."""

    def drawn(path: str, at: str, target: object = (LINK, "p0_t0_0--p0_t1_2")) -> dict[str, object]:
        loss = {"kind": "ev_loss", "path": path, "probability": 0.1, "at": at, "for": "3 s"}
        return loss | {"target": list(target) if isinstance(target, tuple) else target}

    both = {"choose": 2}
    one, other = drawn("p0/t1_1", "3 s") | both, drawn("p0/t1_2", "5 s") | both
    (problem,) = problems(_scenario(one, other))
    assert problem.where == "timeline[1].at"
    assert "after timeline[0] is over" in problem.expected
    assert problems(_scenario(one, drawn("p0/t1_2", "6500 ms") | both)) == ()
    assert problems(_scenario(one, drawn("p0/t1_1", "5 s") | both)) == ()
    between = drawn("p0/t1_1", "3100 ms") | both | {"for": "100 ms"}
    (problem,) = problems(_scenario(one, between, other))
    assert "after timeline[0]" in problem.expected, "though another one has come and gone since"
    fixed = [drawn("p0/t1_1", at, LINK) for at in ("3 s", "5 s")]
    assert len(problems(_scenario(*fixed))) == 1


def test_healing_at_the_very_end_is_possible_but_leaves_no_room() -> None:
    scenario = _scenario(_fault(lasting="6 s"))
    assert problems(scenario) == ()
    assert "after healing" in _remarks(scenario)["timeline[0].for"]


def test_a_fault_at_the_start_leaves_nothing_to_compare_with() -> None:
    assert "10 RTTs (1.31 s)" in _remarks(_scenario(_fault(at="1.3 s")))["timeline[0].at"]
    assert "timeline[0].at" not in _remarks(_scenario(_fault(at="1.4 s")))


def test_a_fault_on_no_path_is_remarked() -> None:
    messages = _remarks(_scenario(_fault("h1--p0_t0_0"), _fault("p0_t0_1--p0_t1_3")))
    assert set(messages) == {"timeline[0].target"}
    assert "no EV of any flow" in messages["timeline[0].target"]


def test_a_fault_on_an_unused_path_of_a_flow_with_few_evs_is_remarked() -> None:
    faults = [_fault(f"p0_t0_0--p0_t1_{j}") for j in range(4)]
    messages = _remarks(_scenario(*faults, transport={"evs": 4}, bidirectional=False))
    assert len(messages) == 3, "one EV a plane: three of the plane's four links are not used"


def test_the_last_path_is_remarked_when_it_goes() -> None:
    first, second = _fault("p0_t0_0--p0_t1_0"), _fault("p0_t0_1--p0_t1_1", at="5 s", lasting="1 s")
    pairs = [["h0", "h1"]]
    messages = _remarks(_scenario(first, second, topology=ONE, pairs=pairs))
    assert set(messages) == {"timeline[1]"}
    assert "h0 -> h1, h1 -> h0" in messages["timeline[1]"]
    later = _fault("p0_t0_1--p0_t1_1", at="7.5 s", lasting="1 s")
    assert _remarks(_scenario(first, later, topology=ONE, pairs=pairs)) == {}
    messages = _remarks(_scenario(_fault("h0--p0_t0_0"), topology=ONE, pairs=pairs))
    assert "takes the last path at 4 s" in messages["timeline[0]"]


def test_evs_that_share_paths_are_remarked() -> None:
    assert (
        "h0 -> h4 (32 EVs, 16 paths)" in _remarks(_scenario(transport={"evs": 32}))["transport.evs"]
    )
    local = _remarks(_scenario(pairs=[["h0", "h1"]], transport={"evs": 16}))["transport.evs"]
    assert "h0 -> h1 (16 EVs, 4 paths)" in local


def test_a_number_of_evs_that_planes_cannot_share_is_remarked() -> None:
    assert (
        "12 EVs for 4 planes, not 15" in _remarks(_scenario(transport={"evs": 15}))["transport.evs"]
    )
    assert "4 EVs for 4 planes, not 1" in _remarks(_scenario(transport={"evs": 1}))["transport.evs"]


def test_a_rotation_longer_than_a_base_rtt_is_remarked() -> None:
    """A base RTT has room for 38 packets a port: 154 of a host with four."""
    fits = remarks(_scenario(transport={"evs": 152, "backups": 0}))
    assert not any("rotation" in remark.what for remark in fits)
    late = remarks(_scenario(transport={"evs": 160, "backups": 0}))
    assert any("160 EVs in" in remark.what for remark in late)
    shared = [["h0", f"h{4 + i}"] for i in range(4)]
    crowded = remarks(_scenario(pairs=shared, transport={"evs": 152, "backups": 0}))
    assert any("rotation" in r.what and "and 1 more" in r.what for r in crowded)


def test_messages_too_long_to_complete_are_remarked() -> None:
    messages = _remarks(_scenario(message_size="8 MiB"))
    assert "fewer than 10 messages complete in 10 s" in messages["workload.message_size"]
    assert _remarks(_scenario(message_size="4 MiB")) == {}


def test_memory_of_messages() -> None:
    assert buffer_bytes(_scenario(message_size="1 MiB", depth=4)) == (2 * 6 + 2) * 2**20


def test_a_fabric_of_the_real_size_is_checked_without_being_built() -> None:
    scenario = _scenario(
        _fault("p7_t0_511--p7_t1_255"),
        _fault("h131071--p7_t0_511"),
        _fault("p7_t0_511--p7_t1_256"),
        topology=REAL,
        pairs=[["h0", "h131071"]],
    )
    (problem,) = problems(scenario)
    assert problem.where == "timeline[2].target"
    right = scenario.model_copy(update={"timeline": scenario.timeline[1:2]})
    assert remarks(right) == ()
    assert "links" not in REAL.__dict__, "the whole fabric was built"


def test_names_are_suggested_only_where_they_are_similar() -> None:
    assert did_you_mean("Duraton", ("duration", "seed")) == "did you mean duration?"
    assert did_you_mean("x", ("duration", "seed")) == ""
    assert did_you_mean("anything", ()) == ""


def test_odd_fabrics_have_no_remarks_either() -> None:
    assert _remarks(_scenario(topology=ODD, pairs=[["h0", "h5"]])) == {}


def test_a_fault_that_only_backups_would_feel_is_remarked() -> None:
    def told_of(link: int) -> dict[str, str]:
        fault = _fault(f"p0_t0_0--p0_t1_{link}")
        return _remarks(_scenario(fault, bidirectional=False, transport={"backups": 0.25}))

    (index,) = {j for j in range(4) if "timeline[0].target" in told_of(j)}
    messages = told_of(index)
    assert "only backup EVs" in messages["timeline[0].target"]


def test_a_workload_too_shallow_to_fill_the_fabric_is_remarked() -> None:
    told = _remarks(_scenario(message_size="256 KiB", depth=3))["workload.depth"]
    assert "the workload limits" in told


def test_a_workload_that_a_single_loss_stops_is_remarked() -> None:
    """Simulated with two lost packets, depths up to 6 lose a part of a round trip, 7 nothing."""
    told = _remarks(_scenario(message_size="256 KiB", depth=6))["workload.depth"]
    assert "have 1.25 MiB, less than is sent in 2.25 round trips (1.403 MiB)" in told
    assert _remarks(_scenario(message_size="256 KiB", depth=7)) == {}


def test_roce_on_several_planes_is_remarked() -> None:
    told = _remarks(_scenario(transport={"kind": "roce", "qps": 2}))["transport.kind"]
    assert "2 between two hosts reach 50% of the hosts' rate" in told
    assert _remarks(_scenario(transport={"kind": "roce"}, topology=ONE, pairs=[["h0", "h4"]])) == {}


def test_a_fault_shorter_than_a_packet_is_remarked() -> None:
    """A full packet takes 3.39 ms on a link of 10 Mbit/s."""
    (where, told), *others = _remarks(_scenario(_fault(lasting="3 ms"))).items()
    assert (where, others) == ("timeline[0]", [])
    assert told.startswith("lasts 3 ms, less than a full packet takes on the link (3.39 ms)")
    assert _remarks(_scenario(_fault(lasting="4 ms"))) == {}


def test_a_very_long_run_is_remarked_with_how_long_it_takes() -> None:
    """From 100,000 round trips on; a million are a day and a half at the default dilation."""
    day_and_half = _scenario().model_copy(update={"duration": 37 * 3600 * 10**9})
    told = _remarks(day_and_half)["duration"]
    assert "1,018,349 round trips: an emulated run takes 37 h, a simulated one up to" in told


@pytest.mark.parametrize(
    ("starts_us", "sizes_mb", "said"),
    [
        ((0, 50), (1, 1), ()),
        ((0, 0, 0), (4, 4, 4), ("not all can finish: what h0 sends takes 1.56 s or more",)),
        ((0, 100, 5000), (1, 1, 1), ("2 of 3 transfers begin when the run is over",)),
        ((0, 10), (10, 1), ("1 of 2 transfers cannot end before the run does",)),
        (
            (0, 200),
            (10, 1),
            ("1 of 2 transfers begin when the run is over", "1 of 2 transfers cannot end"),
        ),
    ],
)
def test_transfers_that_the_run_is_too_short_for_are_remarked(
    starts_us: tuple[int, ...], sizes_mb: tuple[int, ...], said: tuple[str, ...]
) -> None:
    """A run of 100 us at full speed, in which a host sends 5 MB; four messages still arrive."""
    matrix = [
        {"src": "h0", "dst": "h4", "start": f"{start} us", "size": size * 10**6}
        for start, size in zip(starts_us, sizes_mb, strict=True)
    ]
    scenario = Scenario.model_validate(
        {
            "name": "x",
            "topology": CLOS,
            "duration": "1 s",
            "workload": {"kind": "connections", "matrix": matrix},
        }
    )
    found = [remark.what for remark in remarks(scenario) if remark.where == "workload.matrix"]
    assert len(found) == len(said)
    assert all(text.startswith(begin) for text, begin in zip(found, said, strict=True))
    told = scenario.model_copy(
        update={"expect": Expect.model_validate({"operations": {"unfinished": {"at_most": 2}}})}
    )
    assert not [remark for remark in remarks(told) if remark.where == "workload.matrix"]


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        ("send 6000000b to 1\nsend 4000000b to 1", "h0 sends takes 1.16 s or more"),
        ("send 6000000b to 1", ""),
        ("calc 60000\ncalc 60000\nsend 1b to 1", "h0 computes takes 1.2 s or more"),
        ("calc 60000 cpu 1\ncalc 60000 cpu 2\nsend 1b to 1", ""),
    ],
)
def test_schedules_that_the_run_is_too_short_for_are_remarked(
    tmp_path: Path, rank: str, said: str
) -> None:
    """A run of 100 us at full speed; see above."""
    file = tmp_path / "x.goal"
    receipts = "\n".join(f"recv {size} from 0" for size in re.findall(r"send (\d+b)", rank))
    file.write_text(f"num_ranks 2\nrank 0 {{\n{rank}\n}}\nrank 1 {{\n{receipts}\n}}\n")
    scenario = Scenario.model_validate(
        {
            "name": "x",
            "topology": CLOS,
            "duration": "1 s",
            "workload": {"kind": "goal", "file": "x", "operations": read_goal(file)},
        }
    )
    told = _remarks(scenario).get("workload.file", "")
    assert bool(told) == bool(said)
    assert said in told


@pytest.mark.parametrize(
    ("workload", "remarked"),
    [
        ({"kind": "allreduce", "size": "1 MiB"}, False),
        ({"kind": "allreduce", "size": "16 MiB"}, True),
        ({"kind": "training", "size": "1 MiB", "compute": "2 s"}, True),
    ],
)
def test_a_collective_longer_than_the_run_is_remarked(
    workload: dict[str, Any], remarked: bool
) -> None:
    scenario = Scenario.model_validate(
        {"name": "x", "topology": CLOS, "duration": "1 s", "workload": workload}
    )
    found = [remark.what for remark in remarks(scenario) if remark.where == "workload"]
    assert bool(found) is remarked
    assert all("none can finish" in what for what in found)


@pytest.mark.parametrize(
    ("transport", "refused"),
    [
        ({"dialect": {"judgement": "relative"}, "evs": 16}, []),
        ({"dialect": {"congestion_scope": "destination"}}, ["transport.dialect.congestion_scope"]),
        ({"ecn_skip": False}, ["transport.ecn_skip"]),
    ],
)
def test_of_a_program_s_transport_only_what_its_device_judges_by_applies(
    transport: dict[str, Any], refused: list[str]
) -> None:
    workload = {"kind": "program", "hosts": ["h0", "h1"], "command": ["true"]}
    scenario = Scenario.model_validate(
        {"name": "x", "topology": CLOS, "workload": workload, "transport": transport}
    )
    assert [problem.where for problem in problems(scenario)] == refused
