"""What the controller is told, and which links become wires."""

from pathlib import Path

from pydantic import TypeAdapter

from testbed.emulation.controller.plan import ControllerPlan, choose_wires
from testbed.model.fabric.topology import Topology
from testbed.model.faults.kinds import Fault
from testbed.model.faults.schedule import ScheduledFault, scheduled_faults

TINY = Topology(name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1)
FABRIC_LINK = "p0_t0_0--p0_t1_1"
NIC_LINK = "h0--p0_t0_0"


def fault(
    target: str | list[str],
    at: str = "1 s",
    duration: str = "1 s",
    kind: str = "blackhole",
    **more: object,
) -> Fault:
    """One entry of a timeline, as a scenario file says it."""
    entry = {"kind": kind, "target": target, "at": at, "for": duration, **more}
    entry_fault: Fault = TypeAdapter(Fault).validate_python(entry)
    return entry_fault


def struck(*faults: Fault) -> tuple[ScheduledFault, ...]:
    """What a timeline of these makes happen on the tiny fabric within a minute."""
    return scheduled_faults(TINY, faults, 60 * 10**9, seed=1)


def test_wires_have_the_interfaces_and_port_numbers_of_their_order() -> None:
    """The first wire has w0a on port 1 and w0b on port 2, the second the next ones."""
    plan = ControllerPlan(TINY, (), (NIC_LINK, FABRIC_LINK), Path())
    assert [(w.link.name, w.ends, w.ports) for w in plan.openflow_wires] == [
        (NIC_LINK, ("w0a", "w0b"), (1, 2)),
        (FABRIC_LINK, ("w1a", "w1b"), (3, 4)),
    ]


def test_wires_are_the_first_links_struck_by_themselves() -> None:
    """A link named twice is one wire; the limit counts wires; what strikes many makes none."""
    faults = struck(
        fault("p1_t1_0"),
        fault(FABRIC_LINK, kind="loss", probability=0.1),
        fault(NIC_LINK),
        fault(FABRIC_LINK, "5 s"),
        fault(NIC_LINK, "5 s", kind="cut"),
        fault("p1_t0_0>h0"),
        fault("h1--p0_t0_1"),
    )
    assert choose_wires(faults, openvswitch=True, limit=3) == (NIC_LINK, FABRIC_LINK, "h0--p1_t0_0")


def test_without_open_vswitch_there_are_no_wires() -> None:
    """Every fault then goes through the link itself."""
    assert choose_wires(struck(fault(FABRIC_LINK)), openvswitch=False) == ()
