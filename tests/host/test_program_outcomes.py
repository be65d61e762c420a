"""What became of the flows of programs, from the reports of their devices."""

from testbed.host.outcome import program_outcomes
from testbed.model.files.scenarios import load_scenario
from testbed.model.run_files.content import (
    DeviceOutcome,
    FlowRecord,
    HostRecord,
    OpenedFlow,
    ReceivedFlow,
    SentFlow,
)


def outcome(
    sent: SentFlow | None, received: ReceivedFlow | None
) -> tuple[FlowRecord, dict[str, HostRecord]]:
    """The outcome of a flow from h0 to h4, of which the two ends report this."""
    opened = OpenedFlow(flow=0, src="h0", dst="h4", lane=0, qpn=16, psn=0, program="h0.lock")
    closed = [DeviceOutcome(host="h0", control_bytes=1, refused={"stray": 2})] * 2
    if sent is not None:
        closed.append(DeviceOutcome(host="h0", sent=(sent,)))
    if received is not None:
        closed.append(DeviceOutcome(host="h4", received=(received,)))
    (flow,), hosts = program_outcomes(load_scenario("healthy"), [opened], closed)
    return flow, hosts


def test_what_was_acknowledged_has_to_be_there() -> None:
    flow, _ = outcome(
        SentFlow(flow=0, bytes_sent=100, bytes_unaccounted=10),
        ReceivedFlow(flow=0, bytes_placed=70),
    )
    assert (flow.bytes_verified, flow.bytes_lost, flow.bytes_unaccounted) == (70, 20, 10)
    assert flow.bytes_completed == 90


def test_what_nobody_waits_for_is_not_lost() -> None:
    """Its queue pair was closed, or failed, with all of this under way; most has arrived."""
    flow, _ = outcome(
        SentFlow(flow=0, bytes_sent=100, bytes_unaccounted=100, errors=("failed",)),
        ReceivedFlow(flow=0, bytes_placed=95),
    )
    assert (flow.bytes_lost, flow.bytes_unaccounted, flow.errors) == (0, 5, ("failed",))


def test_an_end_that_was_killed_reports_nothing() -> None:
    flow, _ = outcome(None, ReceivedFlow(flow=0, bytes_placed=95))
    assert (flow.bytes_sent, flow.bytes_lost, flow.bytes_unaccounted) == (95, 0, 0)
    flow, _ = outcome(SentFlow(flow=0, bytes_sent=100), None)
    assert (flow.bytes_verified, flow.bytes_lost, flow.bytes_unaccounted) == (0, 0, 100)


def test_the_devices_of_a_host_count_together() -> None:
    _, hosts = outcome(None, None)
    assert hosts == {"h0": HostRecord(control_bytes=2, refused={"stray": 4})}
