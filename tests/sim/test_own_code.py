"""Algorithms of the user's own, in whole simulated runs and in what is wrong with them."""

from pathlib import Path

import pytest

from testbed.host.own_code import OwnSelector
from testbed.model.errors import ExitStatus, InputError
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.mrc import EvInfo, EvState
from testbed.sim import Simulation

EXAMPLES = Path(__file__).parents[2] / "examples/algorithms.py"
LEAVE_MARKED = EXAMPLES.with_name("leave_marked.py")
REPS = EXAMPLES.with_name("reps.py")
FORCED_EV = EXAMPLES.parents[1] / "scenarios/paper/forced-ev.yaml"

FIRST = """
class Mine:
    def __init__(self, evs, seed):
        self.evs = [info.ev for info in evs if info.active]

    def pick(self, now_ns, flight, avoid):
        return self.evs[0]
"""


def _scenario(key: str, reference: object) -> Scenario:
    settings = {f"transport.{key}": str(reference), "duration": "2 s"}
    return load_scenario("link-failure", settings=settings | {"timeline": [], "expect": {}})


def _written(directory: Path, source: str) -> Path:
    file = directory / "mine.py"
    file.write_text(source)
    return file


def _verified(scenario: Scenario) -> Simulation:
    simulation = Simulation(scenario)
    for flow in simulation.run().flows:
        assert flow.errors == ()
        assert flow.bytes_verified == flow.bytes_sent > 0
    return simulation


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("key", "file", "name"),
    [
        ("spray", EXAMPLES, "RandomEv"),
        ("congestion", EXAMPLES, "Aimd"),
        ("spray", REPS, "Reps"),
    ],
)
def test_the_examples_deliver_everything(key: str, file: Path, name: str) -> None:
    _verified(_scenario(key, f"{file}:{name}"))


@pytest.mark.simulated
def test_who_looks_at_ports_uses_more_of_a_healthy_fabric() -> None:
    """A packet on a port that is busy takes the room of those on idle ports."""
    arrived = []
    for spray in (f"{EXAMPLES}:RandomEv", f"{REPS}:Reps"):
        settings = {"duration": "12 RTT", "expect": {}, "transport.spray": spray}
        outcome = Simulation(load_scenario("permutation", settings=settings)).run()
        arrived.append(sum(flow.bytes_verified for flow in outcome.flows))
    assert arrived[1] > 1.05 * arrived[0]


def test_reps_freezes_after_a_loss_and_follows_denials() -> None:
    """EVs that worked are taken again, in turn, and no other is drawn."""
    code = load_scenario("healthy", settings={"transport.spray": f"{REPS}:Reps"}).own_code
    evs = [EvInfo(ev=ev, plane=ev % 2, path=ev, active=True) for ev in range(64)]
    parameters = {"cache": 2, "freeze": 100, "explore": 1}
    selector = OwnSelector(code["transport.spray"], evs, 1, parameters=parameters)
    for ev in (7, 8, 9):
        selector.on_sack(ev, 4096, None, ecn=ev == 8, now_ns=1)
    assert [selector.pick(2, 0, None), selector.pick(3, 0, None)] == [7, 9]
    selector.on_loss(3, "late", 4)
    assert [selector.pick(now_ns, 0, None) for now_ns in (5, 6, 7)] == [7, 9, 7]
    selector.on_state(7, EvState.DENIED, active=False, now_ns=8)
    assert {selector.pick(now_ns, 0, None) for now_ns in (9, 10)} == {9}
    assert {selector.pick(now_ns, 0, None) for now_ns in (105, 106, 107)} > {9}  # drawn again


@pytest.mark.simulated
def test_who_leaves_a_marked_ev_for_long_leaves_it_to_a_flow_that_has_no_other() -> None:
    """MRC passes over it once, and still sends a third of its packets there."""
    ratios = []
    for settings in ({}, {"transport.spray": f"{LEAVE_MARKED}:LeaveMarked"}):
        outcome = Simulation(load_scenario(str(FORCED_EV), settings=settings)).run()
        first, second = (flow.bytes_verified for flow in outcome.flows)
        ratios.append(second / first)
    assert ratios[0] < 0.85
    assert ratios[1] > 0.95


def test_a_selector_decides_the_path_of_every_packet(tmp_path: Path) -> None:
    """With one EV for each direction, data take one T1 each way."""
    simulation = Simulation(_scenario("spray", f"{_written(tmp_path, FIRST)}:Mine"))
    counts = simulation.run().counts
    up = {name: count.bytes for name, count in counts.items() if "_t0_" in name.split(">")[0]}
    busy = [name for name, count in up.items() if "_t1_" in name and count > max(up.values()) / 2]
    assert len(busy) == 2


WRONG = {
    "an error": ("        return 1 // 0", "mine.py:7: Mine.pick: found ZeroDivisionError"),
    "another EV": (
        "        return -1",
        "mine.py:6: Mine.pick: found -1, expected an EV that __init__ gets",
    ),
    "text": ("        return 'path 1'", "found 'path 1', expected an EV that __init__ gets"),
    "a number that Python does not write": ("        return 10**5000", "of the type int, expected"),
    "the end": ("        raise SystemExit(0)", "mine.py:7: Mine.pick: found SystemExit"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_selector_does_wrong_is_named(case: str, tmp_path: Path) -> None:
    line, message = WRONG[case]
    file = _written(tmp_path, FIRST.replace("        return self.evs[0]", line))
    with pytest.raises(InputError) as caught:
        Simulation(_scenario("spray", f"{file}:Mine")).run()
    assert message in str(caught.value)
    assert caught.value.exit_status is ExitStatus.WRONG_INPUT


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class Mine:\n    window = 'wide'\n", "Mine.__init__: found window = 'wide' after it"),
        (
            "class Mine:\n    window = float('nan')\n",
            "found window = nan after it, expected a number",
        ),
        (
            "class Mine:\n    pass\n",
            "mine.py:1: Mine: found no window, expected a class with self.win",
        ),
        (
            "import nothing_of_this_name\nclass Mine: ...\n",
            "remedy: install nothing_of_this_name, or put it as one file beside",
        ),
        ("from . import near\nclass Mine: ...\n", "remedy: name the file beside it without a dot"),
    ],
)
def test_what_a_controller_does_wrong_is_named(source: str, message: str, tmp_path: Path) -> None:
    source = source.replace("Mine:\n", "Mine:\n    def __init__(self, path): ...\n")
    file = _written(tmp_path, source)
    with pytest.raises(InputError) as caught:
        Simulation(_scenario("congestion", f"{file}:Mine")).run()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("fast", "expected adaptive, blind, or a class of your own such as ./mine.py:MyClass"),
        ("nowhere.py:Mine", "found nowhere.py, which does not exist"),
        ("{file}:Mein", "did you mean Mine? Or rename that class to Mein"),
        ("{broken}:Mine", "broken.py:1: found no Python: invalid syntax"),
    ],
)
def test_a_reference_to_nothing_is_refused(reference: str, message: str, tmp_path: Path) -> None:
    file = _written(tmp_path, FIRST)
    broken = tmp_path / "broken.py"
    broken.write_text("class :")
    with pytest.raises(InputError) as caught:
        _scenario("spray", reference.format(file=file, broken=broken))
    assert message in str(caught.value)


def test_a_scenario_keeps_the_source_when_it_is_written_and_read(tmp_path: Path) -> None:
    file = _written(tmp_path, FIRST)
    scenario = _scenario("spray", f"{file}:Mine")
    file.unlink()
    again = Scenario.recorded(scenario.model_dump(mode="json", by_alias=True))
    assert again == scenario
    assert isinstance(again.transport, Mrc)
    assert str(again.transport.spray) == f"{file}:Mine"


@pytest.mark.simulated
def test_two_runs_of_a_seed_are_equal() -> None:
    counts = [_verified(_scenario("spray", f"{EXAMPLES}:RandomEv")) for _ in range(2)]
    first, second = ([direction.counts.offered for _, direction in run.fabric] for run in counts)
    assert first == second
