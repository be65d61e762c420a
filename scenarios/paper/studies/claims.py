"""What hash ECMP, a lossy link of a NIC and a flapping transceiver leave to a run."""

from testbed import Result
from testbed.model.fabric.addressing import directions_of_path
from testbed.model.fabric.names import link_of
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.studies.paper.experiments.drawing import SETTLE_RTTS, total_bps


def settled_bps(run: Result) -> float:
    """The goodput of all flows, from when it has settled."""
    return total_bps(run.flows, SETTLE_RTTS * run.data.base_rtt_s, run.data.end_s)


LOSSY_NIC = "h4"
LOSSY_LINK = "h4--p1_t0_1"
FLAPPING_NIC = "h0"


def _links(run: Result, flow: FlowTables, ev: int) -> set[str]:
    """The links that an EV's data cross."""
    src, dst = (run.data.topology.nodes[name] for name in (flow.flow.src, flow.flow.dst))
    path = run.data.path_of(flow.flow, ev)
    return set(map(link_of, directions_of_path(run.data.topology, src, dst, path)))


def suspects_count(run: Result) -> int:
    """How many links the EVs that a sender has left during the fault have in common.

    Links that an EV crosses which the sender kept are none. All this is what MRC knows.
    """
    (fault,) = run.summary.faults
    moment = fault.healed_s or 0.0
    flow = next(flow for flow in run.flows if LOSSY_NIC in (flow.flow.src, flow.flow.dst))
    left: set[str] | None = None
    remaining = set[str]()
    for ev, spans in flow.spans.items():
        links = _links(run, flow, ev)
        if any(span.start <= moment <= span.end and span.active for span in spans):
            remaining |= links
        else:
            left = links if left is None else left & links
    return len((left or set()) - remaining)


def _denied(run: Result) -> tuple[list[bool], list[bool]]:
    """Whether the deny list had taken out each EV across the lossy link, and each other EV."""
    (fault,) = run.summary.faults
    moment = fault.healed_s or 0.0
    across, others = list[bool](), list[bool]()
    for flow in run.flows:
        for ev, spans in flow.spans.items():
            (state,) = {span.state for span in spans if span.start <= moment < span.end}
            crosses = LOSSY_LINK in _links(run, flow, ev)
            (across if crosses else others).append(state == "DENIED")
    return across, others


def denied_fraction(run: Result) -> float:
    """The share of the EVs across the lossy link that were taken out when the fault ended."""
    across, _ = _denied(run)
    return sum(across) / len(across)


def denied_elsewhere_count(run: Result) -> int:
    """How many other EVs were."""
    return sum(_denied(run)[1])


def failed_count(run: Result) -> int:
    """How many flows of the flapping NIC failed."""
    its = (flow for flow in run.data.run.flows if FLAPPING_NIC in (flow.src, flow.dst))
    return sum(bool(flow.errors) for flow in its)


def failed_elsewhere_count(run: Result) -> int:
    """How many others failed."""
    return run.summary.qps_in_error - failed_count(run)


def kept_fraction(run: Result) -> float:
    """The throughput of the others while it flaps, of that before."""
    others = [flow for flow in run.flows if FLAPPING_NIC not in (flow.flow.src, flow.flow.dst)]
    (fault,) = run.summary.faults
    start, healed = fault.effective_s or 0.0, fault.healed_s or 0.0
    before = total_bps(others, 5 * run.data.base_rtt_s, start)
    return total_bps(others, start, healed) / before


def damaged_bytes(run: Result) -> int:
    """Payload that is not in place as it was sent; what is under way at the end is not."""
    return run.summary.integrity.bytes_lost + run.summary.integrity.bytes_corrupted
