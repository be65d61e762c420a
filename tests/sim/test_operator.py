"""An operator's commands in a scenario and by hand, in virtual time."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from testbed.live.forks import RunHistory
from testbed.model.checks import problems
from testbed.model.files.scenarios import load_scenario
from testbed.model.operator.commands import parse_command
from testbed.model.operator.replayed import replayed_operator
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.mrc import NEVER
from testbed.sim import simulate
from testbed.sim.run import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.simulated, pytest.mark.long]

S = 1_000_000_000
FLOW = "h0->h4"


def healthy(*orders: dict[str, Any], **changes: object) -> Scenario:
    scenario = load_scenario("healthy")
    operator = tuple(parse_command({"flow": FLOW, **order}) for order in orders)
    return scenario.model_copy(update={"duration": 6 * S, "operator": operator, **changes})


def port_order(kind: str, at: str) -> dict[str, Any]:
    return {"kind": kind, "host": "h0", "plane": 2, "at": at}


class Commands:
    """Gives commands to a simulation in the middle of the run."""

    step_ns = S

    def __init__(self, *commands: dict[str, Any]) -> None:
        self._commands: Iterator[dict[str, Any]] = iter(commands)
        self.answers: list[dict[str, Any]] = []

    def begins(self, simulation: Simulation, _t0_ns: int, _base_rtt_ns: int) -> None:
        self._simulation = simulation

    def goes_on(self, _now_ns: int) -> bool:
        command = next(self._commands, None)
        if command is not None:
            self._simulation.operate(parse_command(command), self.answers.append)
        return command is not None


def answers(*commands: dict[str, Any]) -> list[dict[str, Any]]:
    observer = Commands({"kind": "ports", "host": "h0"}, *commands)
    Simulation(healthy()).run(observer=observer)
    return observer.answers[1:]


def test_a_command_for_a_host_that_takes_no_part_names_those_that_do() -> None:
    (answer,) = answers({"kind": "ports", "host": "h3"})
    (problem,) = answer["errors"]
    assert (problem["where"], problem["found"]) == ("command.host", "h3")
    assert problem["expected"].startswith("a host that takes part: h0")


def test_a_scenario_denies_probes_and_allows_at_its_times(tmp_path: Path) -> None:
    scenario = healthy(
        {"kind": "deny", "ev": "p1", "at": "2 s"},
        {"kind": "probe", "at": "3 s"},
        {"kind": "allow", "ev": "p1", "at": "4 s"},
    )
    simulate(scenario, tmp_path)
    rows = pl.read_parquet(tmp_path / "operator.parquet")
    assert set(rows["by"]) == {"scenario"}
    denied = rows.filter(pl.col("kind") == "deny")
    assert denied["t"].to_list() == pytest.approx([2.0] * 4, abs=0.01)
    assert set(denied["result"]) == {"DENIED"}
    assert set(denied["plane"]) == {1}
    asked, probed = rows.filter(pl.col("kind") == "probe").partition_by("result")
    assert asked["t"].to_list() == pytest.approx([3.0] * 16, abs=0.01)
    assert asked["result"][0].startswith("asked, within ")
    assert set(probed["result"]) == {"answered"}
    assert len(probed) == 16
    assert 0.1e9 < probed["rtt_ns"].min() <= probed["rtt_ns"].max() < 0.3e9  # type: ignore[operator]
    sent = pl.read_parquet(tmp_path / "transmissions.parquet").filter(pl.col("flow") == 0)
    between = sent.filter(pl.col("t").is_between(2.01, 3.99))
    assert set(between["plane"]) == {0, 2, 3}
    assert set(sent.filter(pl.col("t") > 5)["plane"]) == {0, 1, 2, 3}


def test_a_disabled_port_carries_nothing_until_it_is_enabled(tmp_path: Path) -> None:
    times = {"disable": "2 s", "enable": "4 s"}
    operator = tuple(parse_command(port_order(kind, at)) for kind, at in times.items())
    simulate(healthy(operator=operator), tmp_path)
    rows = pl.read_parquet(tmp_path / "operator.parquet")
    assert rows["result"].to_list() == ["disabled", "enabled"]
    sent = pl.read_parquet(tmp_path / "transmissions.parquet")
    for flow in (0, 1):  # h4 is told
        mine = sent.filter(pl.col("flow") == flow)
        assert 2 not in set(mine.filter(pl.col("t").is_between(2.3, 3.99))["plane"])
        assert 2 in set(mine.filter(pl.col("t") > 5)["plane"])


def test_commands_by_hand_and_what_they_answer() -> None:
    listed, denied, replaced, probed, ports, events = answers(
        {"kind": "list", "flow": FLOW},
        {"kind": "deny", "flow": FLOW, "ev": "p1/t1_0"},
        {"kind": "replace", "flow": FLOW, "ev": "p2/t1_0", "by": str(0x20007)},
        {"kind": "probe", "flow": FLOW, "ev": ["p0/t1_1", "p3"], "within": "2 s"},
        {"kind": "disable", "host": "h0", "plane": 3},
        {"kind": "events", "host": "h0"},
    )
    assert {ev["state"] for ev in listed["evs"]} == {"GOOD"}
    states = {ev["path"]: (ev["state"], ev["denied_by"]) for ev in denied["evs"]}
    assert states["p1/t1_0"] == ("DENIED", ["hand"])
    by_ev = {ev["ev"]: ev["state"] for ev in replaced["evs"]}
    assert (by_ev[0x20000], by_ev[0x20007]) == ("DENIED", "ASSUMED_BAD")
    assert {ev["condemnations"] for ev in replaced["evs"]} == {0}
    assert {ev["path"] for ev in probed["evs"]} == {"p0/t1_1", *(f"p3/t1_{i}" for i in range(4))}
    assert {ev["result"] for ev in probed["evs"]} == {"answered"}
    assert [port["state"] for port in ports["ports"]] == [*["enabled"] * 3, "disabled"]
    states_of_events = [event["state"] for event in events["events"]]
    assert states_of_events.count("DENIED") == 2
    assert "disabled" in states_of_events
    assert {event["profile"] for event in events["events"] if "ev" in event} == {FLOW}
    assert events["dropped"] == 0


def test_an_ev_that_is_named_twice_is_probed_once() -> None:
    """By its plane and by its path: the batch is over when each EV has answered."""
    probe = {"kind": "probe", "flow": FLOW, "ev": ["p0", "p0/t1_0", "p0"], "within": "2 s"}
    (probed,) = answers(probe)
    assert sorted(ev["path"] for ev in probed["evs"]) == [f"p0/t1_{t1}" for t1 in range(4)]


def test_a_command_at_or_after_the_end_changes_nothing() -> None:
    """It may have been on its way when the run ended, and its sender is told that it is over."""
    scenario = healthy()
    host = Simulation(scenario).hosts[scenario.topology.host_named("h0")]
    operator, told = host.traffic.operator, list[dict[str, Any]]()
    operator.end_at(6 * S)
    deny = parse_command({"kind": "deny", "flow": FLOW, "ev": ["p0"]})
    operator.handle(deny, 6 * S, told.append)
    assert [problem["found"] for problem in told[0]["errors"]] == ["a run that is over"]
    operator.handle(deny, 6 * S - 1, told.append)
    assert {ev["state"] for ev in told[1]["evs"] if ev["port"] == 0} == {"DENIED"}


def test_a_command_of_the_scenario_that_is_due_at_or_after_the_end_changes_nothing() -> None:
    """The run was ended by hand: it only waits for the last messages."""
    scenario = healthy({"kind": "deny", "ev": "p0", "at": "2 s"})
    for at_end, expected in ((2 * S, "GOOD"), (2 * S + 1, "DENIED")):
        host = Simulation(scenario).hosts[scenario.topology.host_named("h0")]
        operator, told = host.traffic.operator, list[dict[str, Any]]()
        operator.begin(0)
        operator.end_at(at_end)
        operator.work(3 * S)
        assert operator.deadline_ns == NEVER
        operator.end_at(NEVER)
        operator.handle(parse_command({"kind": "list", "flow": FLOW}), 3 * S, told.append)
        assert {ev["state"] for ev in told[0]["evs"] if ev["port"] == 0} == {expected}


def test_an_allow_is_recorded_as_of_whoever_gave_it(tmp_path: Path) -> None:
    """Whoever had denied the EV, and even if nobody had."""
    scenario = healthy(
        {"kind": "deny", "ev": "p1/t1_0", "at": "0.5 s"},
        {"kind": "allow", "ev": "p3/t1_0", "at": "3.5 s"},
    )
    nothing = {"kind": "ports", "host": "h0"}
    by_hand = Commands(
        {"kind": "deny", "flow": FLOW, "ev": "p3/t1_0"},
        {"kind": "allow", "flow": FLOW, "ev": ["p1/t1_0", "p2/t1_0"]},
        nothing,
        nothing,
    )
    simulate(scenario, tmp_path, observer=by_hand)
    assert [ev["denied_by"] for ev in by_hand.answers[1]["evs"] if ev["path"] == "p1/t1_0"] == [[]]
    rows = pl.read_parquet(tmp_path / "operator.parquet").filter(pl.col("kind") == "allow")
    assert rows["plane"].to_list() == [1, 2, 3]
    assert rows["by"].to_list() == ["hand", "hand", "scenario"]
    assert rows["result"].to_list() == ["ASSUMED_BAD", "GOOD", "ASSUMED_BAD"]


def test_a_port_that_is_enabled_already_has_no_event() -> None:
    again = [{"kind": kind, "host": "h0", "plane": 1} for kind in ("enable", "disable", "disable")]
    *_, events = answers(*again, {"kind": "events", "host": "h0"})
    ports = [event["state"] for event in events["events"] if "ev" not in event]
    assert ports == ["disabled"]


def test_the_last_port_of_a_host_cannot_be_disabled() -> None:
    """Nor that of the last EVs which are not denied, nor can the EVs of the last port be denied."""
    ports = [{"kind": "disable", "host": "h0", "plane": plane} for plane in range(4)]
    *_, last, listed = answers(*ports, {"kind": "ports", "host": "h0"})
    assert last["errors"][0]["found"] == "3"
    assert "leaves h0 a path to h4" in last["errors"][0]["expected"]
    assert [port["state"] for port in listed["ports"]] == [*["disabled"] * 3, "enabled"]
    *_, denial = answers(*ports[:3], {"kind": "deny", "flow": FLOW, "ev": "p3"})
    assert "leave the flow a path" in denial["errors"][0]["expected"]
    denied = {"kind": "deny", "flow": FLOW, "ev": ["p0", "p1", "p2"]}
    _, disabled = answers(denied, ports[3])
    assert "leaves h0 a path to h4" in disabled["errors"][0]["expected"]


def test_a_scenario_that_disables_every_port_of_a_host_is_refused() -> None:
    """In the order of their times; with one enabled in between it is not."""

    def wrong(*orders: tuple[str, int, str]) -> list[str]:
        operator = tuple(
            parse_command({"kind": kind, "host": "h0", "plane": plane, "at": at})
            for kind, plane, at in orders
        )
        return [problem.where for problem in problems(healthy(operator=operator))]

    first = [("disable", plane, f"{plane + 1} s") for plane in (0, 1, 2)]
    assert wrong(("disable", 3, "4 s"), *first) == ["operator[0].plane"]
    assert wrong(("enable", 1, "3.5 s"), ("disable", 3, "4 s"), *first) == []


@pytest.mark.parametrize(
    ("command", "found", "expected"),
    [
        ({"kind": "deny", "flow": FLOW, "ev": "p9/t1_0"}, "p9/t1_0", "an EV of h0->h4"),
        ({"kind": "deny", "flow": FLOW, "ev": "0x7"}, "0x7", "an EV of h0->h4"),
        ({"kind": "deny", "flow": FLOW, "ev": ["p0", "p1", "p2", "p3"]}, "p0, p1", "a path"),
        ({"kind": "list", "flow": "h0->h7"}, "h0->h7", "a flow of the run"),
        ({"kind": "replace", "flow": FLOW, "ev": "p1/t1_0", "by": "p2/t1_0"}, "p2", "of plane 1"),
        ({"kind": "replace", "flow": FLOW, "ev": "p1", "by": "p1/t1_0"}, "p1", "one EV"),
        ({"kind": "disable", "host": "h0", "plane": 7}, "7", "0 to 3"),
    ],
)
def test_a_wrong_command_changes_nothing(
    command: dict[str, Any], found: str, expected: str
) -> None:
    refused, listed = answers(command, {"kind": "list", "flow": FLOW})
    assert found in refused["errors"][0]["found"]
    assert expected in refused["errors"][0]["expected"]
    assert {ev["state"] for ev in listed["evs"]} == {"GOOD"}


def test_the_last_paths_are_not_denied_one_after_the_other() -> None:
    planes = [{"kind": "deny", "flow": FLOW, "ev": f"p{plane}"} for plane in range(4)]
    *done, refused = answers(*planes)
    assert not any("errors" in answer for answer in done)
    assert "all others are denied" in refused["errors"][0]["expected"]


def test_a_scenario_names_what_does_not_exist() -> None:
    scenario = healthy(
        {"kind": "deny", "ev": "p9/t1_0", "at": "1 s"},
        {"kind": "deny", "ev": "p0", "at": "9 s"},
        {"kind": "allow", "flow": "h1->h2", "ev": "p0", "at": "1 s"},
    )
    assert [problem.where for problem in problems(scenario)] == [
        "operator[0].ev",
        "operator[1].at",
        "operator[2].flow",
    ]


def test_the_commands_of_a_run_can_be_replayed() -> None:
    scenario = healthy({"kind": "deny", "ev": "p0/t1_0", "at": "3 s"})
    row = {"by": "hand", "host": "h0", "flow": 0, "plane": 2, "result": "DENIED", "rtt_ns": -1}
    rows = [
        {**row, "t": 1.0, "kind": "disable", "flow": -1, "ev": 0},
        {**row, "t": 2.0, "kind": "replace", "ev": 5},
        {**row, "t": 2.0, "kind": "replace", "ev": 6},
        {**row, "t": 2.5, "kind": "deny", "ev": 7, "result": "refused: p9"},
        {**row, "t": 4.0, "kind": "allow", "ev": 7, "by": "clustermapper"},
    ]
    again = replayed_operator(scenario, rows, [FLOW])
    assert [(entry["kind"], entry["at"]) for entry in again] == [
        ("disable", "1 s"),
        ("replace", "2 s"),
        ("deny", "3 s"),
    ]
    assert again[1]["by"] == "6"
    healthy(*(entry for entry in again if "flow" in entry))
    assert len(replayed_operator(scenario, rows, [FLOW], until_ns=2 * S)) == 1


def test_a_batch_of_probes_is_replayed_as_it_was_asked_for(tmp_path: Path) -> None:
    """One command, at the time at which it was asked for, which may be long before its end."""
    probe = {"kind": "probe", "flow": FLOW, "ev": ["p0/t1_1", "p3"], "within": "1.5 s"}
    simulate(healthy(), tmp_path, observer=Commands({"kind": "ports", "host": "h0"}, probe))
    rows = pl.read_parquet(tmp_path / "operator.parquet").to_dicts()
    evs = [str(row["ev"]) for row in rows if row["result"] == "answered"]
    assert len(evs) == 5
    assert replayed_operator(healthy(), rows, [FLOW]) == [{**probe, "ev": evs, "at": "1 s"}]


def test_what_was_asked_before_or_after_a_run_can_be_replayed() -> None:
    """The first is done at the start, the last not at all: they would be refused."""
    row = {"by": "hand", "kind": "disable", "host": "h0", "flow": -1, "plane": 2, "ev": 0}
    rows = tuple({**row, "t": t, "result": "disabled", "rtt_ns": -1} for t in (-0.1, 5.9, 6.0, 6.1))
    history = RunHistory(healthy(), {}, (), rows, 0, 6 * S)
    assert [entry["at"] for entry in history.as_scenario()["operator"]] == ["0 s", "5.9 s"]


def wrong_orders(*orders: dict[str, Any]) -> list[str]:
    """The problems of a scenario with these commands, by their places."""
    operator = tuple(parse_command(order) for order in orders)
    return [problem.where for problem in problems(healthy(operator=operator))]


def test_commands_that_together_leave_a_flow_no_path_are_refused() -> None:
    """Denials and ports of both ends count, in the order of their times."""
    deny = {"kind": "deny", "flow": FLOW, "ev": ["p0", "p1", "p2"], "at": "1 s"}
    disable = {"kind": "disable", "host": "h4", "plane": 3, "at": "2 s"}
    assert wrong_orders(deny, disable) == ["operator[1].plane"]
    assert wrong_orders(disable, deny) == ["operator[0].plane"]
    assert wrong_orders(disable | {"at": "0.5 s"}, deny) == ["operator[1].ev"]
    allow = {"kind": "allow", "flow": FLOW, "ev": "p1", "at": "1.5 s"}
    assert wrong_orders(deny, allow, disable) == []
    assert wrong_orders(deny, disable | {"plane": 1}) == []
    rest = {"kind": "deny", "flow": FLOW, "ev": "p3", "at": "1.5 s"}
    assert wrong_orders(deny, rest) == ["operator[1].ev"]


def test_a_port_cannot_be_disabled_with_blind_spraying() -> None:
    """It would go on carrying its share; the message tells what helps instead."""
    operator = tuple(parse_command(port_order(kind, "1 s")) for kind in ("disable", "enable"))
    scenario = healthy(operator=operator, transport=Mrc(spray="blind"))
    found = [*problems(scenario)]
    assert [problem.where for problem in found] == ["operator[0].kind", "operator[1].kind"]
    assert "testbed ev deny RUN FLOW p2" in found[0].remedy
    assert [*problems(healthy(operator=operator))] == []


def test_an_ev_that_took_the_place_of_another_can_be_denied() -> None:
    replace = {"kind": "replace", "flow": FLOW, "ev": "p1/t1_0", "by": str(0x10007), "at": "1 s"}
    deny = {"kind": "deny", "flow": FLOW, "ev": str(0x10007), "at": "2 s"}
    assert wrong_orders(replace, deny) == []
    assert wrong_orders(replace, deny | {"at": "0.5 s"}) == ["operator[1].ev"]


def test_a_command_at_the_end_of_a_run_is_refused() -> None:
    scenario = healthy()
    at = {"kind": "deny", "flow": FLOW, "ev": "p1"}
    assert wrong_orders(at | {"at": f"{scenario.duration} ns"}) == ["operator[0].at"]
    assert wrong_orders(at | {"at": f"{scenario.duration - 1} ns"}) == []
