from typing import Any

import pytest
from pydantic import ValidationError

from testbed.model.faults.kinds import Cut, Flap
from testbed.model.flows import fair_shares_bps, flows_of
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.workload import Connections, WriteBw

from .fabrics import ODD

RIGHT: dict[str, Any] = {"name": "x", "topology": ODD, "workload": {"pairs": [["h0", "h5"]]}}


def test_defaults() -> None:
    scenario = Scenario.model_validate(RIGHT)
    assert (scenario.seed, scenario.duration, scenario.timeline) == (1, 10**10, ())
    assert isinstance(scenario.workload, WriteBw)
    assert scenario.workload.message_size == 2**20
    assert scenario.transport == Mrc()


def test_flows_go_both_ways_unless_told_otherwise() -> None:
    pairs = [["h0", "h5"], ["h1", "h4"]]
    both = Scenario.model_validate(RIGHT | {"workload": {"pairs": pairs}})
    assert both.flows == (
        ("h0", "h5", 0),
        ("h1", "h4", 0),
        ("h5", "h0", 0),
        ("h4", "h1", 0),
    )
    one = Scenario.model_validate(RIGHT | {"workload": {"pairs": pairs, "bidirectional": False}})
    assert one.flows == (("h0", "h5", 0), ("h1", "h4", 0))


def test_every_queue_pair_of_a_pair_is_a_flow_each_way() -> None:
    workload = {"pairs": [["h0", "h5"]]}
    scenario = Scenario.model_validate(RIGHT | {"workload": workload, "transport": {"qps": 2}})
    numbered = [(f.number, f.src.name, f.dst.name, f.lane) for f in flows_of(scenario)]
    assert numbered == [
        (0, "h0", "h5", 0),
        (1, "h0", "h5", 1),
        (2, "h5", "h0", 0),
        (3, "h5", "h0", 1),
    ]
    whole_bps = scenario.topology.planes * scenario.topology.port_rate_bps
    assert set(fair_shares_bps(scenario).values()) == {whole_bps / 2}


def test_what_a_busy_end_leaves_over_goes_to_the_others() -> None:
    """Three into h0; h4, which is one of them, has two thirds of its ports for its second flow."""
    pairs = [["h1", "h0"], ["h4", "h0"], ["h5", "h0"], ["h4", "h2"], ["h2", "h3"]]
    workload = {"pairs": pairs, "bidirectional": False}
    scenario = Scenario.model_validate(RIGHT | {"workload": workload})
    whole_bps = scenario.topology.planes * scenario.topology.port_rate_bps
    shares = {
        (f.src.name, f.dst.name): fair_shares_bps(scenario)[f.number] for f in flows_of(scenario)
    }
    assert {pair: share / whole_bps for pair, share in shares.items()} == pytest.approx(
        {
            ("h1", "h0"): 1 / 3,
            ("h4", "h0"): 1 / 3,
            ("h5", "h0"): 1 / 3,
            ("h4", "h2"): 2 / 3,
            ("h2", "h3"): 1,
        }
    )


def test_a_fault_is_written_with_for() -> None:
    fault = Cut.model_validate(
        {"kind": "cut", "target": "h0--p0_t0_0", "at": "1 s", "for": "250 ms"}
    )
    assert fault.target == ("h0--p0_t0_0",)
    assert fault.heals_at_ns == 1_250_000_000


def test_json_reads_back_the_same() -> None:
    scenario = Scenario.model_validate(
        RIGHT
        | {
            "timeline": [
                {"kind": "blackhole", "target": "p0_t0_0--p0_t1_1", "at": "4.5 s", "for": "3 s"}
            ]
        }
    )
    text = scenario.model_dump_json(by_alias=True)
    assert Scenario.model_validate_json(text) == scenario


def test_at_another_dilation_all_times_of_the_run_stretch_and_no_real_one() -> None:
    fault = {"target": "p0_t0_0--p0_t1_1", "at": "4 s", "for": "3 s", "every": "4 s"}
    scenario = Scenario.model_validate(
        RIGHT
        | {
            "timeline": [
                {"kind": "delay", **fault, "ramp": "1 s", "extra": "5 us"},
                {"kind": "flap", **fault, "period": "300 ms"},
                {"kind": "reboot", **fault, "silent": "2 s"},
            ],
            "workload": {"kind": "training", "compute": "100 ms"},
            "transport": {"kind": "roce", "convergence": "50 us"},
            "clustermapper": {"period": "1 ms"},
        }
    )
    slower = scenario.at_dilation(2 * scenario.topology.dilation)
    assert slower.topology.dilation == 2 * scenario.topology.dilation
    before, after = (one.model_dump(mode="json", by_alias=True) for one in (scenario, slower))
    stretched = {key for key, (one, other) in _leaves(before, after).items() if one != other}
    assert stretched == {
        "topology.dilation",
        "duration",
        "workload.compute",
        *(f"timeline.{i}.{key}" for i in range(3) for key in ("at", "for", "every")),
        "timeline.0.ramp",
        "timeline.1.period",
        "timeline.2.silent",
    }
    flap = slower.timeline[1]
    assert isinstance(flap, Flap)
    assert (flap.at, flap.period) == (8_000_000_000, 600_000_000)
    assert slower.at_dilation(scenario.topology.dilation) == scenario


def _leaves(one: Any, other: Any, place: str = "") -> dict[str, tuple[Any, Any]]:
    """Values of two documents of one shape, by where they stand."""
    if isinstance(one, dict | list):
        keys = one if isinstance(one, dict) else range(len(one))
        found: dict[str, tuple[Any, Any]] = {}
        for key in keys:
            found |= _leaves(one[key], other[key], f"{place}.{key}" if place else f"{key}")
        return found
    return {place: (one, other)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", -1),
        ("seed", 2**31),
        ("seed", True),
        ("seed", 1.0),
        ("duration", "0 s"),
        ("duration", 10),
        ("name", "a b"),
        ("workload", {"pairs": []}),
        ("workload", {"pairs": [["h0"]]}),
        ("workload", {"pairs": [["h0", "h1", "h2"]]}),
        ("workload", {"pairs": [["h0", "h1"]], "message_size": "0 B"}),
        ("workload", {"pairs": [["h0", "h1"]], "message_size": "129 MiB"}),
        ("workload", {"pairs": [["h0", "h1"]], "bidirectional": 1}),
        ("workload", {"pairs": [["h0", "h1"]], "depth": 65}),
        ("workload", {"kind": "write_bu", "pairs": [["h0", "h1"]]}),
        ("workload", {"kind": ["write_bw"], "pairs": [["h0", "h1"]]}),
        ("transport", {"kind": "smoke-signals"}),
        ("transport", {"qps": 17}),
        ("transport", {"backups": 1}),
        ("transport", {"backups": True}),
        ("transport", {"evs": 0}),
        ("transport", {"window": 0}),
        ("timeline", [{"kind": "cut", "target": "h0--p0_t0_0", "at": "1 s", "for": "0 s"}]),
        ("timeline", [{"kind": "flood", "target": "h0--p0_t0_0", "at": "1 s", "for": "1 s"}]),
        ("timelines", []),
    ],
)
def test_wrong_values_are_refused_where_they_stand(key: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Scenario.model_validate(RIGHT | {key: value})
    assert {error["loc"][0] for error in caught.value.errors()} == {key}


def test_a_longer_scenario_has_longer_faults_and_the_same_work() -> None:
    fault = {"kind": "delay", "target": "links", "at": "4 s", "for": "1 s", "extra": "5 us"}
    scenario = Scenario.model_validate(
        RIGHT
        | {
            "duration": "10 s",
            "drain": "2 s",
            "timeline": [{**fault, "every": "2 s", "ramp": "500 ms"}],
            "operator": [{"kind": "disable", "host": "h0", "plane": 0, "at": "3 s"}],
            "workload": {"kind": "training", "compute": "100 ms"},
        }
    )
    longer = scenario.longer(3)
    before, after = (each.model_dump(mode="json", by_alias=True) for each in (scenario, longer))
    changed = {key for key, (old, new) in _leaves(before, after).items() if old != new}
    assert changed == {
        "duration",
        *(f"timeline.0.{key}" for key in ("at", "for", "every", "ramp")),
        "operator.0.at",
    }
    assert longer.duration == 3 * scenario.duration
    assert scenario.longer(1) == scenario


def test_a_longer_matrix_has_the_same_load_for_longer() -> None:
    matrix = [{"src": "h0", "dst": "h1", "start": "8 us", "size": 1000}]
    scenario = Scenario.model_validate(
        RIGHT | {"workload": {"kind": "connections", "matrix": matrix}}
    )
    workload = scenario.longer(2.5).workload
    assert isinstance(workload, Connections)
    (transfer,) = workload.matrix
    assert (transfer.start, transfer.size) == (20_000, 2_500)
    assert scenario.longer(1) == scenario
