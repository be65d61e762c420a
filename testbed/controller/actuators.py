"""What makes a fault happen on a link, and proves that it did."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from testbed.controller.flows import DROP_PRIORITY, PATCH_PRIORITY
from testbed.controller.timeline import Clock
from testbed.fabric.openvswitch import Wire, forwarded_packets
from testbed.model.errors import RunFailedError, TestbedError
from testbed.model.faults import FaultKind

if TYPE_CHECKING:  # they bring Ryu
    from testbed.controller.openflow import Session, SessionSource

CARRIER_TIMEOUT_NS = 1_000_000_000
CARRIER_POLL_S = 0.0005

BOTH_UP = (True, True)
BOTH_DOWN = (False, False)


class FaultError(RunFailedError):
    """A fault did not take effect, leaked, or did not heal."""


@dataclass(frozen=True, slots=True)
class Effect:
    """When a change took effect: at a time within an interval of CLOCK_MONOTONIC.

    Attributes:
        after_ns: nothing had changed before this.
        by_ns: it held for every packet from here on.
        proof: what was observed.
    """

    after_ns: int
    by_ns: int
    proof: Mapping[str, Any]


class Actuator(Protocol):
    """A way to reach links. Every method raises a TestbedError where it does not succeed."""

    @property
    def name(self) -> str:
        """What the records call it."""

    def blackhole(self, link: str) -> Effect:
        """Drop everything both ways, silently: both ends keep carrier."""

    def cut(self, link: str) -> Effect:
        """Take carrier from both ends."""

    def prove(self, link: str) -> Mapping[str, Any]:
        """Show that the link's fault has held until now: what it did to packets and carrier."""

    def heal(self, link: str) -> Effect:
        """Undo the link's fault and see that the link is whole."""


class LinkControl(Protocol):
    """What this module uses of the fabric's control over links; every link by its name."""

    def open(self, link: str) -> None:
        """Make ready for a fault on a link."""

    def blackhole(self, link: str, on: bool) -> None:
        """Drop everything both ways, or stop doing so."""

    def cut(self, link: str) -> None:
        """Set both ends down."""

    def restore(self, link: str) -> None:
        """Set both ends up, wait until they forward, put their routes back and read them back."""

    def carrier(self, link: str) -> tuple[bool, bool]:
        """Whether the lower and the upper end have carrier."""

    def dropped(self, link: str) -> tuple[int, int]:
        """Packets dropped so far at the lower and the upper end."""


# --- through Open vSwitch ---------------------------------------------------------------------


@dataclass(slots=True)
class _WireFault:
    """A fault that a wire has now.

    Attributes:
        kind: what it is.
        forwarded: each end's count of transmitted packets when it took effect.
    """

    kind: FaultKind
    forwarded: tuple[int, int] = (0, 0)


class OpenFlowActuator:
    """Flows and ports of the bridge that the wires run through."""

    name = "openflow"

    def __init__(
        self,
        wires: Sequence[Wire],
        session: "SessionSource",
        purge_datapath: Callable[[], None],
        links: LinkControl,
        clock: Clock,
    ) -> None:
        """Nothing is sent yet: `install` is for when the switch connects.

        Args:
            wires: every wire of the run.
            session: gives the present connection to the switch.
            purge_datapath: makes the switch forget forwarding decisions that it has cached.
            links: reads carrier at the nodes' ends, and puts their routes back.
            clock: the clock.
        """
        self._wires = {wire.link.name: wire for wire in wires}
        self._session = session
        self._purge_datapath = purge_datapath
        self._links = links
        self._clock = clock
        self._faults: dict[str, _WireFault] = {}

    def install(self, session: "Session") -> None:
        """Bring a switch that has just connected to the present state, faults included.

        Its tables may be empty (it is new) or as we left them (the connection was lost). Drops go
        in before patches, so that nothing passes a blackhole in between.

        Raises:
            SwitchError: it refused, or has not the ports.
        """
        wires = tuple(self._wires.values())
        session.learn_ports(wires)
        for wire in wires:
            fault = self._faults.get(wire.link.name)
            kind = fault.kind if fault else None
            drops = session.drop if kind is FaultKind.BLACKHOLE else session.undrop
            session.commit(
                [
                    *session.power(wire, up=kind is not FaultKind.CUT),
                    *drops(wire),
                    *session.patch(wire),
                ]
            )
        self._check_patched(session, wires)

    def blackhole(self, link: str) -> Effect:
        """Drop by flows; it holds for every packet once the datapath's cache is empty."""
        wire, session = self._wires[link], self._session()
        fault = self._faults[link] = _WireFault(FaultKind.BLACKHOLE)
        try:
            commit = session.commit(session.drop(wire))
            self._purge_datapath()
            by_ns = self._clock.now_ns()
            fault.forwarded = forwarded_packets(wire)
            carrier = self._links.carrier(link)
        except TestbedError:
            del self._faults[link]
            raise
        if carrier != BOTH_UP:
            raise FaultError(f"{link}: carrier {carrier} under a blackhole")
        proof = {"barrier_ns": commit.confirmed_ns, "carrier": carrier}
        return Effect(commit.sent_ns, by_ns, proof)

    def cut(self, link: str) -> Effect:
        """Set both ports down."""
        wire, session = self._wires[link], self._session()
        self._faults[link] = _WireFault(FaultKind.CUT)
        try:
            commit = session.commit(session.power(wire, up=False))
            by_ns = self._await_carrier_loss(link)
        except TestbedError:
            del self._faults[link]
            raise
        proof = {"barrier_ns": commit.confirmed_ns, "carrier": BOTH_DOWN}
        return Effect(commit.sent_ns, by_ns, proof)

    def prove(self, link: str) -> Mapping[str, Any]:
        """Read carrier; of a blackhole also what it dropped and whether anything got past it."""
        wire, fault = self._wires[link], self._faults[link]
        carrier = self._links.carrier(link)
        if fault.kind is FaultKind.CUT:
            if carrier != BOTH_DOWN:
                raise FaultError(f"{link}: carrier {carrier} while cut")
            reported = [self._session().port_status_ns.get(port) for port in wire.ports]
            return {"carrier": carrier, "port_status_ns": reported}
        self._purge_datapath()  # and with it, counts what the datapath had not yet reported
        flows = self._session().flows()
        dropped = [flows.get((DROP_PRIORITY, port)) for port in wire.ports]
        forwarded = [
            now - then for now, then in zip(forwarded_packets(wire), fault.forwarded, strict=True)
        ]
        if None in dropped or any(forwarded) or carrier != BOTH_UP:
            raise FaultError(
                f"{link}: a blackhole with drops {dropped} forwarded {forwarded} packets, "
                f"carrier {carrier}"
            )
        return {"carrier": carrier, "dropped": dropped, "forwarded": forwarded}

    def heal(self, link: str) -> Effect:
        """Set the ports up or delete the drops; the link and its patches must be whole again."""
        wire, session = self._wires[link], self._session()
        fault = self._faults.pop(link)
        undo = session.power(wire, up=True) if fault.kind is FaultKind.CUT else session.undrop(wire)
        commit = session.commit([*undo, *session.patch(wire)])
        self._purge_datapath()
        if fault.kind is FaultKind.CUT:
            self._links.restore(link)
        by_ns = self._clock.now_ns()
        carrier = self._links.carrier(link)
        if carrier != BOTH_UP:
            raise FaultError(f"{link}: carrier {carrier} after healing")
        self._check_patched(session, [wire])
        return Effect(commit.sent_ns, by_ns, {"carrier": carrier})

    def _await_carrier_loss(self, link: str) -> int:
        deadline = self._clock.now_ns() + CARRIER_TIMEOUT_NS
        while (found := self._links.carrier(link)) != BOTH_DOWN:
            if self._clock.now_ns() > deadline:
                raise FaultError(f"{link}: carrier {found} at its ends after a cut")
            self._clock.sleep(CARRIER_POLL_S)
        return self._clock.now_ns()

    def _check_patched(self, session: "Session", wires: Sequence[Wire]) -> None:
        flows = session.flows()
        for wire in wires:
            wanted = {(PATCH_PRIORITY, port) for port in wire.ports}
            fault = self._faults.get(wire.link.name)
            if fault and fault.kind is FaultKind.BLACKHOLE:
                wanted |= {(DROP_PRIORITY, port) for port in wire.ports}
            found = {key for key in flows if key[1] in wire.ports}
            if found != wanted:
                raise FaultError(f"{wire.link.name}: flows {found}, not {wanted}")


# --- on the link itself -----------------------------------------------------------------------


class LinkActuator:
    """The link's own ends in the nodes' namespaces."""

    name = "link"

    def __init__(self, control: LinkControl, clock: Clock) -> None:
        """Take the fabric's control over links."""
        self._control = control
        self._clock = clock
        self._faults: dict[str, _LinkFault] = {}

    def blackhole(self, link: str) -> Effect:
        """Have both ends swallow what they are to send."""
        fault = _LinkFault(FaultKind.BLACKHOLE, self._control.dropped(link))
        after_ns = self._clock.now_ns()
        self._control.blackhole(link, True)
        by_ns = self._clock.now_ns()
        self._faults[link] = fault
        return Effect(after_ns, by_ns, {"carrier": self._expect(link, BOTH_UP)})

    def cut(self, link: str) -> Effect:
        """Set both ends down."""
        after_ns = self._clock.now_ns()
        self._control.cut(link)
        carrier = self._expect(link, BOTH_DOWN)
        by_ns = self._clock.now_ns()
        self._faults[link] = _LinkFault(FaultKind.CUT)
        return Effect(after_ns, by_ns, {"carrier": carrier})

    def prove(self, link: str) -> Mapping[str, Any]:
        """Read carrier; of a blackhole also what it dropped."""
        fault = self._faults[link]
        if fault.kind is FaultKind.CUT:
            return {"carrier": self._expect(link, BOTH_DOWN)}
        dropped = [
            now - then for now, then in zip(self._control.dropped(link), fault.dropped, strict=True)
        ]
        return {"carrier": self._expect(link, BOTH_UP), "dropped": dropped}

    def heal(self, link: str) -> Effect:
        """Undo it; carrier must be there again."""
        fault = self._faults.pop(link)
        after_ns = self._clock.now_ns()
        if fault.kind is FaultKind.CUT:
            self._control.restore(link)
        else:
            self._control.blackhole(link, False)
        carrier = self._expect(link, BOTH_UP)
        return Effect(after_ns, self._clock.now_ns(), {"carrier": carrier})

    def _expect(self, link: str, wanted: tuple[bool, bool]) -> tuple[bool, bool]:
        found = self._control.carrier(link)
        if found != wanted:
            raise FaultError(f"{link}: carrier {found} at its ends, not {wanted}")
        return found


@dataclass(frozen=True, slots=True)
class _LinkFault:
    kind: FaultKind
    dropped: tuple[int, int] = (0, 0)
