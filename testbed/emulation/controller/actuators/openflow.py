"""Faults of wires: links that run through Open vSwitch, whose ports and flows are changed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.emulation.controller.actuators.state import (
    Clock,
    Effect,
    FaultError,
    LinkImpairments,
    check_carrier,
)
from testbed.emulation.controller.plan import DROP_PRIORITY, WIRE_PRIORITY
from testbed.emulation.fabric.link_model.link_control import (
    CARRIER_POLL_S,
    CARRIER_TIMEOUT_NS,
    LinkControl,
)
from testbed.emulation.fabric.openvswitch.switch import OpenFlowWire, forwarded_packets
from testbed.model.faults.record import OPENFLOW

if TYPE_CHECKING:  # it loads Ryu
    from testbed.emulation.controller.session import Message, Session, SessionSource

NEITHER = (False, False)
BOTH = (True, True)


@dataclass(slots=True)
class _WireState:
    """What OpenFlow has done to a wire.

    Attributes:
        cut: its ports are down.
        drops: whether packets are dropped that come in at the lower end, and at the upper end.
        forwarded: packets forwarded to the lower and to the upper node when that began.
    """

    cut: bool = False
    drops: tuple[bool, bool] = NEITHER
    forwarded: tuple[int, int] = (0, 0)


class OpenFlowActuator:
    """Flows and ports of the bridge that the wires run through: carrier, and blackholes."""

    name = OPENFLOW

    def __init__(
        self,
        wires: Sequence[OpenFlowWire],
        session: "SessionSource",
        purge_datapath: Callable[[], bool],
        links: LinkControl,
        clock: Clock,
    ) -> None:
        """Send nothing yet: `install` does when the switch connects.

        Args:
            wires: every wire of the run.
            session: returns the present connection to the switch.
            purge_datapath: has the switch forget cached decisions; returns whether it caches any.
            links: reads carrier at the nodes' ends, and restores their routes.
            clock: the clock.
        """
        self._wires = {wire.link.name: wire for wire in wires}
        self._states = {name: _WireState() for name in self._wires}
        self._session = session
        self._purge_datapath = purge_datapath
        self._links = links
        self._clock = clock

    def install(self, session: "Session") -> None:
        """Bring a switch that has just connected into the present state, faults included.

        Its tables may be empty (it is new) or as they were when the connection was lost. Drops are
        installed before patches, so that nothing passes a blackhole in between.

        Raises:
            SwitchError: it refused, or lacks the ports.
        """
        session.learn_ports(tuple(self._wires.values()))
        for name, wire in self._wires.items():
            state = self._states[name]
            others = (not state.drops[0], not state.drops[1])
            session.commit(
                [
                    *session.set_ports(wire, up=not state.cut),
                    *_drop_changes(session, wire, others, state.drops),
                    *session.add_patch(wire),
                ]
            )
            self._check_flows(session, wire, state)

    def apply(self, link: str, target: LinkImpairments) -> Effect:
        """Set ports up or down, and add or remove drops.

        A change is in force once the datapath has forgotten its cached decisions. A cut drops all
        packets before it takes carrier, as the kernel takes milliseconds to set a port down.
        Carrier returns last, so that what is sent from then on arrives. Only what changes is sent:
        the barrier waits for every message.

        Raises:
            FaultError: carrier or flows are not what they should be.
            SwitchError: the switch refused or did not answer.
        """
        wire, session, state = self._wires[link], self._session(), self._states[link]
        was_cut, dropped = state.cut, state.drops
        state.cut, state.drops = _on_wire(target)  # a switch that connects now gets the same
        after_ns, routes = self._clock.now_ns(), 0
        by_ns = session.commit(_drop_changes(session, wire, dropped, state.drops))
        if self._purge_datapath():
            by_ns = self._clock.now_ns()
        if was_cut and not state.cut:
            session.commit(session.set_ports(wire, up=True))
            routes = self._links.restore(link)
            by_ns = self._clock.now_ns()
        if state.cut and not was_cut:
            session.commit(session.set_ports(wire, up=False))
            self._await_carrier_loss(link)
        state.forwarded = forwarded_packets(wire)
        check_carrier(self._links, link, cut=target.cut)
        self._check_flows(session, wire, state)
        return Effect(after_ns, by_ns, routes)

    def needs(self, link: str, target: LinkImpairments) -> bool:
        """Whether a wire has to be changed here to be in that state."""
        state = self._states[link]
        return (state.cut, state.drops) != _on_wire(target)

    def prove(self, link: str) -> Mapping[str, Any]:
        """Show that a wire is still in its state; return its counters since then.

        Raises:
            FaultError: something passed a blackhole, or carrier or flows have changed.
        """
        wire, state = self._wires[link], self._states[link]
        check_carrier(self._links, link, cut=state.cut)
        session = self._session()
        if state.cut:
            return {"port_status_ns": [session.port_status_ns.get(port) for port in wire.ports]}
        self._purge_datapath()  # which has the datapath report its counters first
        flows = session.flows()
        to_lower, to_upper = (
            now - before
            for now, before in zip(forwarded_packets(wire), state.forwarded, strict=True)
        )
        forwarded = [to_upper, to_lower]
        counts = [flows.get((DROP_PRIORITY, port)) for port in wire.ports]
        for drops, count, passed in zip(state.drops, counts, forwarded, strict=True):
            if drops and (count is None or passed):
                raise FaultError(f"{link}: a blackhole with drops {counts} forwarded {forwarded}")
        if state.drops == NEITHER:
            return {}
        return {"dropped_by_flows": [count or 0 for count in counts], "forwarded": forwarded}

    def _await_carrier_loss(self, link: str) -> None:
        deadline = self._clock.now_ns() + CARRIER_TIMEOUT_NS
        while (carrier := self._links.carrier(link)) != NEITHER:
            if self._clock.now_ns() > deadline:
                raise FaultError(f"{link}: carrier {carrier} at its ends after a cut")
            self._clock.sleep(CARRIER_POLL_S)

    def _check_flows(self, session: "Session", wire: OpenFlowWire, state: _WireState) -> None:
        flows = {key for key in session.flows() if key[1] in wire.ports}
        drops = (port for port, on in zip(wire.ports, state.drops, strict=True) if on)
        expected = {(WIRE_PRIORITY, port) for port in wire.ports}
        expected |= {(DROP_PRIORITY, port) for port in drops}
        if flows != expected:
            raise FaultError(f"{wire.link.name}: flows {flows}, not {expected}")


def _on_wire(target: LinkImpairments) -> tuple[bool, tuple[bool, bool]]:
    """Whether a wire's ports are to be down, and at which ends packets are to be dropped."""
    blackholes = target.up.blackhole, target.down.blackhole
    return target.cut, BOTH if target.cut else blackholes


def _drop_changes(
    session: "Session", wire: OpenFlowWire, before: tuple[bool, bool], after: tuple[bool, bool]
) -> "list[Message]":
    """The messages that add and remove drops at the ends of a wire."""
    ends = tuple(zip(wire.ports, before, after, strict=True))
    added = [port for port, dropped, drops in ends if drops and not dropped]
    removed = [port for port, dropped, drops in ends if dropped and not drops]
    return [*session.add_drops(added), *session.remove_drops(removed)]
