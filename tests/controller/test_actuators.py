"""The order in which the OpenFlow actuator works, and what it takes for proof."""

from contextlib import nullcontext
from typing import Any

import pytest

from testbed.emulation.controller import actuators
from testbed.emulation.controller.actuators import (
    FaultError,
    LinkImpairments,
    OpenFlowActuator,
    Places,
)
from testbed.emulation.controller.plan import DROP_PRIORITY, WIRE_PRIORITY
from testbed.emulation.fabric.layout import Layout
from testbed.emulation.fabric.openvswitch import wires_of
from testbed.model.faults.impairment import Impairment
from tests.controller.test_plan import FABRIC_LINK, TINY
from tests.controller.test_timeline import VirtualClock

WIRES = wires_of(Layout.of(TINY, (FABRIC_LINK,)))


class FakeSwitch:
    """A session, links and counters that note what is calls of them."""

    def __init__(self) -> None:
        """Begin with a wire that is whole."""
        self.calls: list[str] = []
        self.clock = VirtualClock()
        self.up = True
        self.forwarded = [0, 0]
        self.table = {(WIRE_PRIORITY, 1): 5, (WIRE_PRIORITY, 2): 5}
        self.port_status_ns: dict[int, int] = {}
        self.keeps_decisions = True

    def actuator(self) -> OpenFlowActuator:
        """An actuator that has only this."""
        fake: Any = self
        return OpenFlowActuator(WIRES, lambda: fake, self.purge, fake, self.clock)

    def purge(self) -> bool:
        """Take time for it."""
        self.calls.append("purge")
        self.clock.time_ns += 1_000_000
        return self.keeps_decisions

    def commit(self, messages: list[str]) -> int:
        """Change what flows there are."""
        self.calls += messages
        for message in messages:
            verb, _, port = message.partition(" ")
            if verb == "drop":
                self.table[DROP_PRIORITY, int(port)] = 0
            if verb == "undrop":
                self.table.pop((DROP_PRIORITY, int(port)), None)
            if message in {"up", "down"}:
                self.up = message == "up"
        return self.clock.time_ns

    def flows(self) -> dict[tuple[int, int], int]:
        return self.table

    def carrier(self, _link: str) -> tuple[bool, bool]:
        """Both ends alike."""
        return self.up, self.up

    def restore(self, _link: str) -> int:
        self.calls.append("restore")
        return 4

    def learn_ports(self, _wires: object) -> None:
        """Know them already."""

    def add_drops(self, ports: list[int]) -> list[str]:
        """One message for each port."""
        return [f"drop {port}" for port in ports]

    def remove_drops(self, ports: list[int]) -> list[str]:
        """One message for each port."""
        return [f"undrop {port}" for port in ports]

    def add_patch(self, _wire: object) -> list[str]:
        return ["patch"]

    def set_ports(self, _wire: object, *, up: bool) -> list[str]:
        return ["up" if up else "down"]


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> FakeSwitch:
    """A switch whose counters are what the test says."""
    fake = FakeSwitch()

    def forwarded(_wire: object) -> tuple[int, int]:
        fake.calls.append("count")
        return fake.forwarded[0], fake.forwarded[1]

    monkeypatch.setattr(actuators, "forwarded_packets", forwarded)
    return fake


DARK = Impairment(blackhole=True)
BLACKHOLE = LinkImpairments(DARK, DARK)
CUT = LinkImpairments(Impairment(cut=True), Impairment(cut=True))


def test_a_blackhole_is_effective_when_the_datapath_has_forgotten(switch: FakeSwitch) -> None:
    """Not at the barrier: what the datapath has cached goes on forwarding for milliseconds."""
    effect = switch.actuator().apply(FABRIC_LINK, BLACKHOLE)
    assert switch.calls == ["drop 1", "drop 2", "purge", "count"]
    assert effect.by_ns - effect.after_ns >= 1_000_000


def test_where_none_are_kept_a_blackhole_is_effective_at_the_barrier(switch: FakeSwitch) -> None:
    """What comes after its reply is no part of it."""
    switch.keeps_decisions = False
    effect = switch.actuator().apply(FABRIC_LINK, BLACKHOLE)
    assert effect.by_ns - effect.after_ns < 1_000_000 <= switch.clock.time_ns - effect.by_ns


def test_a_cut_is_effective_before_its_ports_are_down(switch: FakeSwitch) -> None:
    """The kernel takes milliseconds to set a port down; packets are dropped before."""
    down: list[int] = []

    def set_ports(_wire: object, *, up: bool) -> list[str]:
        down.append(switch.clock.time_ns)
        return ["up" if up else "down"]

    switch.set_ports = set_ports  # type: ignore[method-assign]
    effect = switch.actuator().apply(FABRIC_LINK, CUT)
    assert switch.calls == ["drop 1", "drop 2", "purge", "down", "count"]
    assert effect.after_ns < effect.by_ns <= down[0]


def test_one_direction_is_one_flow(switch: FakeSwitch) -> None:
    """What comes in at the lower end is dropped; what comes back may pass."""
    actuator = switch.actuator()
    actuator.apply(FABRIC_LINK, LinkImpairments(up=DARK))
    assert (DROP_PRIORITY, 1) in switch.table
    assert (DROP_PRIORITY, 2) not in switch.table
    switch.forwarded[0] += 5  # to the lower node: the way down
    assert actuator.prove(FABRIC_LINK)["forwarded"] == [0, 5]
    switch.forwarded[1] += 1
    with pytest.raises(FaultError, match=r"forwarded \[1, 5\]"):
        actuator.prove(FABRIC_LINK)


def test_a_switch_that_comes_back_gets_all_there_is_to_know(switch: FakeSwitch) -> None:
    """Its tables may be empty, or as they were before the connection was lost."""
    actuator = switch.actuator()
    actuator.apply(FABRIC_LINK, LinkImpairments(up=DARK))
    switch.calls.clear()
    fake: Any = switch
    actuator.install(fake)
    assert switch.calls == ["up", "drop 1", "undrop 2", "patch"]


def test_a_blackhole_that_leaks_is_no_blackhole(switch: FakeSwitch) -> None:
    """One packet sent on, either way, is an error."""
    actuator = switch.actuator()
    actuator.apply(FABRIC_LINK, BLACKHOLE)
    switch.table |= {(DROP_PRIORITY, 1): 7, (DROP_PRIORITY, 2): 9}
    proof = actuator.prove(FABRIC_LINK)
    assert (proof["dropped_by_flows"], proof["forwarded"]) == ([7, 9], [0, 0])
    switch.forwarded[1] += 1
    with pytest.raises(FaultError, match=r"forwarded \[1, 0\]"):
        actuator.prove(FABRIC_LINK)


def test_a_blackhole_whose_flows_are_gone_is_no_blackhole(switch: FakeSwitch) -> None:
    """Somebody has emptied the table."""
    actuator = switch.actuator()
    actuator.apply(FABRIC_LINK, BLACKHOLE)
    del switch.table[DROP_PRIORITY, 2]
    with pytest.raises(FaultError, match=r"drops \[0, None\]"):
        actuator.prove(FABRIC_LINK)


def test_a_cut_that_leaves_carrier_is_no_cut(switch: FakeSwitch) -> None:
    """It waits for a second, then says so."""
    began_ns = switch.clock.time_ns
    actuator = switch.actuator()
    switch.set_ports = lambda _wire, *, up: ["nothing"] if not up else ["up"]  # type: ignore[method-assign]
    with pytest.raises(FaultError, match="after a cut"):
        actuator.apply(FABRIC_LINK, CUT)
    assert switch.clock.time_ns - began_ns >= 1_000_000_000


def test_a_healed_cut_puts_routes_back_and_looks_for_its_flows(switch: FakeSwitch) -> None:
    """A wire without its patch is not whole."""
    actuator = switch.actuator()
    actuator.apply(FABRIC_LINK, CUT)
    switch.calls.clear()
    actuator.apply(FABRIC_LINK, LinkImpairments())
    assert switch.calls == ["undrop 1", "undrop 2", "purge", "up", "restore", "count"]
    del switch.table[WIRE_PRIORITY, 1]
    with pytest.raises(FaultError, match="flows"):
        actuator.apply(FABRIC_LINK, LinkImpairments())


class BusyEndpoints:
    """Two endpoints that have refused packets, and one that was never busy."""

    def prove(self, host: str, _state: Impairment) -> dict[str, Any]:
        refused = {"h0": 3, "h1": 4}
        busy = {"busy": {"refusal": "no_bitmap"}, "refused": refused.get(host)}
        return {"stopped": False, **(busy if host in refused else {})}


def test_the_proof_of_a_fault_at_several_hosts_counts_what_all_have_refused() -> None:
    fake: Any = BusyEndpoints()
    places = Places(fake, fake, fake, (), nullcontext)
    shown = places.prove(("h0", "h1"))
    assert shown == {"stopped": False, "busy": {"refusal": "no_bitmap"}, "refused": 7}
    assert places.prove(("h2",)) == {"stopped": False}
