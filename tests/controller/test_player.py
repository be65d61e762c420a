"""Faults at the end of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from testbed.emulation.controller._ryu import HubClock, hub
from testbed.emulation.controller.actuators import Effect
from testbed.emulation.controller.plan import ControllerPlan
from testbed.emulation.controller.player import FaultPlayer
from testbed.model.faults.impairment import Impairment
from testbed.model.faults.kinds import OperationStart
from testbed.model.faults.schedule import ScheduledFault
from testbed.model.units import NS_PER_S
from tests.controller.test_plan import FABRIC_LINK, TINY, fault, struck

if TYPE_CHECKING:
    from testbed.emulation.controller.actuators import Places
    from testbed.emulation.fabric.link_model.link_control import LinkControl

MS = 1_000_000


class SlowPlaces:
    """Places that take a while, as an endpoint does that has to answer first."""

    def actuators(self, _places: Any) -> str:
        return "endpoint"

    def put(self, _fault: int, _places: Any, _state: Impairment) -> tuple[Effect, dict[str, Any]]:
        hub.sleep(0.2)
        now_ns = HubClock().now_ns()
        return Effect(now_ns, now_ns), {}

    def prove(self, _places: Any) -> dict[str, Any]:
        return {}


def player_of(faults: tuple[ScheduledFault, ...], directory: Path) -> FaultPlayer:
    return FaultPlayer(
        ControllerPlan(TINY, faults, (), directory),
        cast("Places", SlowPlaces()),
        cast("LinkControl", None),
        HubClock(),
        lambda _record: None,
    )


def test_what_heals_with_the_end_of_the_run_is_waited_for(tmp_path: Path) -> None:
    """It needs the endpoints, which end afterwards. What heals later is not."""
    faults = struck(
        fault(FABRIC_LINK, "0 ms", "50 ms", "cut"),
        fault(FABRIC_LINK, "60 s", "1 s", "cut"),
    )
    clock, player = HubClock(), player_of(faults, tmp_path)
    t0_ns = clock.now_ns()
    playing = hub.spawn(player.play, t0_ns)
    end_ns = t0_ns + 50 * MS
    clock.sleep((end_ns - clock.now_ns()) / NS_PER_S)
    player.heal_by_hand()
    player.await_healing(end_ns)
    assert player.records()[0].healed_ns is not None
    assert 1 not in player.records()
    hub.kill(playing)


def test_a_fault_waits_for_the_operation_whose_start_it_follows(tmp_path: Path) -> None:
    """Its times count from there; one whose operation never begins never takes effect."""
    after = [{"operation": "step", "number": number} for number in (10, 11)]
    faults = struck(
        fault(FABRIC_LINK, "50 ms", "100 ms", "cut", after=after[0]),
        fault(FABRIC_LINK, "0 ms", "100 ms", "cut", after=after[1]),
    )
    clock, player = HubClock(), player_of(faults, tmp_path)
    playing = hub.spawn(player.play, clock.now_ns())
    clock.sleep(0.2)
    assert not player.records()
    begun_ns = clock.now_ns()
    player.begun(OperationStart(operation="step", number=10), begun_ns)
    player.begun(OperationStart(operation="step", number=10), begun_ns + 1)
    clock.sleep(0)
    player.await_healing(begun_ns + 150 * MS)
    (record,) = player.records().values()
    assert (record.requested_ns, record.heal_requested_ns) == (
        begun_ns + 50 * MS,
        begun_ns + 150 * MS,
    )
    assert record.healed_ns is not None
    player.conclude()
    assert player.records()[1].error == "the run ended before step 11 began"
    hub.kill(playing)


def test_a_host_that_is_busy_at_the_end_of_the_run_stays_so(tmp_path: Path) -> None:
    """It is waited for until it is, and not asked again: nobody takes messages to it any more."""
    faults = struck(fault("h0", "0 ms", "2 s", "busy", penalty=64))
    clock, player = HubClock(), player_of(faults, tmp_path)
    t0_ns = clock.now_ns()
    playing = hub.spawn(player.play, t0_ns)
    clock.sleep(0.05)
    player.await_healing(clock.now_ns())
    assert player.records()[0].effective_ns is not None
    playing.wait()
    player.conclude()
    record = player.records()[0]
    assert (record.healed_ns, record.error) == (None, None)
    assert "until_end" in record.proof
