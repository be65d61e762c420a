"""The outcome of every flow of a run, from the reports of its hosts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from testbed.model.flows import fair_shares_bps, flows_of, left_for_data_bps
from testbed.model.run_files.content import (
    FLOWS,
    OUTCOMES,
    DeviceOutcome,
    FlowRecord,
    HostRecord,
    OpenedFlow,
    SentFlow,
    lines_of,
)
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S, show_duration, show_rate

_ROUNDING: Final = 1e-9
"""A port is full if no more than this part of it is unused."""


def outcomes(
    scenario: Scenario, reports: Mapping[str, Mapping[str, Any]], duration_ns: int, raw: Path
) -> tuple[tuple[FlowRecord, ...], dict[str, HostRecord]]:
    """The outcome of all flows, those that programs opened last, and what hosts count beside them.

    Args:
        scenario: the scenario that was run.
        reports: the report of each host's `Traffic`, by the host's name; none of killed hosts, and
            an empty one of those in which programs ran.
        duration_ns: the duration of the workload.
        raw: the directory with the raw records, in which devices have written what they know.
    """
    opened = [OpenedFlow.model_validate_json(line) for line in lines_of(raw / FLOWS)]
    closed = [DeviceOutcome.model_validate_json(line) for line in lines_of(raw / OUTCOMES)]
    full = {host: report for host, report in reports.items() if report}
    flows = flow_outcomes(scenario.planned, full, duration_ns, opened)
    of_programs, hosts = program_outcomes(scenario, opened, closed)
    for host, report in full.items():
        record, control_bytes = host_record(report), hosts.get(host, HostRecord()).control_bytes
        both = record.control_bytes + control_bytes
        hosts[host] = record.model_copy(update={"control_bytes": both})
    return flows + of_programs, hosts


def flow_outcomes(
    scenario: Scenario,
    reports: Mapping[str, Mapping[str, Any]],
    duration_ns: int,
    opened: Sequence[OpenedFlow] = (),
) -> tuple[FlowRecord, ...]:
    """The outcome of every flow that a scenario plans, over a duration.

    Args:
        scenario: the scenario that was run.
        reports: the report of each host's `Traffic`, by the host's name; none of killed hosts.
        duration_ns: the duration of the workload.
        opened: the flows of programs that had a share of the ports as well.
    """
    sent = {counts["flow"]: counts for report in reports.values() for counts in report["sent"]}
    received = {
        counts["flow"]: counts for report in reports.values() for counts in report["received"]
    }
    signals = scenario.signals
    flows_from = Counter(src for n, (src, _, _) in enumerate(scenario.flows) if n not in signals)
    shares_bps = fair_shares_bps(scenario, _ends_of(opened))
    host_bps = float(scenario.topology.planes * scenario.topology.port_rate_bps)
    unused_bps = dict.fromkeys(flows_from, host_bps)
    for number, (src, _, _) in enumerate(scenario.flows):
        if shares_bps[number]:
            unused_bps[src] -= shares_bps[number]
    outcomes = []
    for flow in flows_of(scenario):
        src = flow.src.name
        at_receiver = received.get(flow.number, {})
        arrived = at_receiver.get("bytes_verified", 0) + at_receiver.get("bytes_corrupted", 0)
        at_sender = sent.get(flow.number, {"bytes_sent": arrived})
        unaccounted = 0 if at_receiver else at_sender["bytes_sent"]
        lost = at_sender["bytes_sent"] - arrived - unaccounted
        control_bytes = reports[src]["control_bytes"] if src in reports else 0
        control_bps = control_bytes * 8 * NS_PER_S / duration_ns
        share_bps = shares_bps[flow.number]
        raw_bps = 0.0
        if share_bps:
            # Where receivers limit what a host sends, its control packets have room beside it.
            unused = unused_bps[src] if unused_bps[src] > _ROUNDING * host_bps else 0.0
            taken_bps = max(control_bps - unused, 0.0) / flows_from[src]
            raw_bps = left_for_data_bps(share_bps, taken_bps)
        fields = {
            **at_sender,
            **at_receiver,
            "flow": flow.number,
            "bytes_under_way": min(lost, at_sender.get("bytes_under_way", 0)),
            "errors": tuple(at_sender.get("errors", ())),
        }
        outcomes.append(
            FlowRecord(
                **fields,
                src=src,
                dst=flow.dst.name,
                lane=flow.lane,
                transport=scenario.transport.kind,
                ports_bps=raw_bps * scenario.transport.payload_share,
                bytes_lost=lost,
                bytes_unaccounted=unaccounted,
            )
        )
    return tuple(outcomes)


def program_outcomes(
    scenario: Scenario, opened: Sequence[OpenedFlow], closed: Sequence[DeviceOutcome]
) -> tuple[tuple[FlowRecord, ...], dict[str, HostRecord]]:
    """The outcome of the flows that programs have sent, and what their hosts count beside them.

    Nobody knows what a program's bytes should be. Verified are those whose packets' checksums
    (iCRC) were right. What a program did not wait for is not lost.

    Args:
        scenario: the scenario that was run.
        opened: the flows, in the order of their numbers.
        closed: what the devices have reported; a device whose process was killed reports nothing.
    """
    sent = {flow.flow: flow for device in closed for flow in device.sent}
    placed = {flow.flow: flow.bytes_placed for device in closed for flow in device.received}
    shares = fair_shares_bps(scenario.planned, _ends_of(opened))
    outcomes = []
    for flow in opened:
        arrived = placed.get(flow.flow)
        at_sender = sent.get(flow.flow) or SentFlow(flow=flow.flow, bytes_sent=arrived or 0)
        missing = at_sender.bytes_sent - (arrived or 0)
        unaccounted = missing if arrived is None else min(missing, at_sender.bytes_unaccounted)
        outcomes.append(
            FlowRecord(
                flow=flow.flow,
                src=flow.src,
                dst=flow.dst,
                transport=scenario.transport.kind,
                ports_bps=shares[flow.flow] * scenario.transport.payload_share,
                lane=flow.lane,
                bytes_sent=at_sender.bytes_sent,
                bytes_completed=at_sender.bytes_sent - unaccounted,
                bytes_verified=arrived or 0,
                bytes_lost=missing - unaccounted,
                bytes_unaccounted=unaccounted,
                packets_sent=at_sender.packets_sent,
                packets_lost=at_sender.packets_lost,
                packets_retransmitted=at_sender.packets_retransmitted,
                errors=at_sender.errors,
            )
        )
    return tuple(outcomes), {host: _merged(closed, host) for host in {d.host for d in closed}}


def _ends_of(opened: Sequence[OpenedFlow]) -> dict[int, tuple[str, str]]:
    return {flow.flow: (flow.src, flow.dst) for flow in opened}


def _merged(devices: Sequence[DeviceOutcome], host: str) -> HostRecord:
    """What all devices of a host count together, which were open one after another."""
    refused, control_bytes = Counter[str](), 0
    for device in devices:
        if device.host == host:
            refused.update(device.refused)
            control_bytes += device.control_bytes
    return HostRecord(control_bytes=control_bytes, refused=dict(refused))


def host_record(report: Mapping[str, Any]) -> HostRecord:
    """The counts of a host that are not of a flow, from its report."""
    return HostRecord.model_validate(report)


# --------------------------------------------------------------------------------------------------
# What a run reports as its progress: how much data arrives, and what is lost.


class TrafficProgress:
    """Describes how a run goes on: the rate at which data arrives, and what is lost."""

    def __init__(self, what: str, duration_ns: int) -> None:
        """Begin a run of this duration; `what` names its step, such as `running`."""
        self._what = what
        self._duration = show_duration(duration_ns)
        self._time_ns = self._bytes = 0

    def describe(self, time_ns: int, arrived_bytes: int, lost: int | None) -> str:
        """The run in words, such as `running: 3 of 10 s, 76.8 Mbit/s arrive, 12 packets dropped`.

        Args:
            time_ns: of the run.
            arrived_bytes: that arrived at hosts so far, headers included.
            lost: packets of all kinds that links have dropped so far; None if not all of them
                are counted yet.
        """
        passed_ns, new_bytes = time_ns - self._time_ns, arrived_bytes - self._bytes
        if passed_ns <= 0:
            return self._what
        self._time_ns, self._bytes = time_ns, arrived_bytes
        rate = show_rate(new_bytes * 8 * NS_PER_S / passed_ns)
        time = f"{show_duration(time_ns)} of {self._duration}"
        losses = "" if lost is None else f", {lost:,} packets dropped"
        return f"{self._what}: {time}, {rate} arrive at the hosts{losses}"
