"""Cases in which measures misled once, with the figures that they have to show."""

from functools import cache
from pathlib import Path

import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.model.files.topologies import load_topology
from testbed.model.summary import FaultEffect, Summary
from testbed.model.summary.unit import NEVER

from .measuring import measured, writes

pytestmark = [pytest.mark.simulated, pytest.mark.long]


def topology(name: str) -> object:
    return load_topology(name)


def rtts(fault: FaultEffect, name: str) -> float:
    value = fault.values[f"{name}_rtt"]
    assert value is not None
    return value


def trusted(summary: Summary) -> Summary:
    assert (summary.verdict, summary.reasons) == ("trusted", ())
    return summary


def test_an_outage_of_a_flow_with_a_small_share_is_no_shorter_than_it_was() -> None:
    """Four QPs of a NIC whose link is cut for 2 s: each is at a quarter of the rate."""
    cut = {"kind": "cut", "target": "h0--p0_t0_0", "at": "2 s", "for": "2 s"}
    summary = trusted(
        measured(
            writes(
                topology("clos-1plane-roce"),
                [("h0", "h4")],
                [cut],
                duration="7 s",
                transport={"kind": "roce", "qps": 4},
            )
        )
    )
    (fault,) = summary.faults
    outage = 2e6 / summary.base_rtt_us
    assert all(rtts(fault, name) > outage for name in ("stall", "in_order_delay", "recovery"))
    assert rtts(fault, "capacity_lost") == pytest.approx(outage, abs=0.2)
    assert (fault.flows_lossy, fault.flows_noticed) == (4, 0)
    assert fault.values["detection_ms"] == NEVER
    assert fault.over_pairs == {}, "four queue pairs of one pair of hosts"
    assert [pair.queue_pairs for pair in fault.pairs] == [4]
    assert "0 of the 4 flows that lost packets detected it" in fault.affected_in_words
    assert {flow.name for flow in fault.flows} == {
        "h0 -> h4",
        *(f"h0 -> h4 #{i}" for i in (1, 2, 3)),
    }


def test_goodput_is_that_of_the_whole_run_and_of_the_time_in_force() -> None:
    """0.5% loss on all links between switches for 36 s: MRC runs at about half its rate meanwhile.

    Before it all was well. Blind spraying loses as much a packet, and keeps its rate.
    """
    adaptive, blind = (_with_loss_everywhere(spray) for spray in ("adaptive", "blind"))
    for flow in adaptive.flows:
        assert flow.before_fraction == pytest.approx(1.0, abs=0.01)
        assert flow.run_fraction == pytest.approx(0.55, abs=0.05)
        assert flow.goodput_run_bps == pytest.approx(21e6, rel=0.08)
        assert flow.values["deficit_rtt"] == pytest.approx(36e6 / adaptive.base_rtt_us / 2, rel=0.1)
    for flow in blind.flows:
        assert flow.run_fraction == pytest.approx(0.99, abs=0.01)
        assert flow.goodput_run_bps == pytest.approx(38e6, rel=0.01)
    for fault in adaptive.faults:
        assert fault.attainable_fraction == pytest.approx(0.5, abs=0.05)
        assert fault.below_share is not None
        assert fault.below_share > 0.85
        assert rtts(fault, "recovery") > 0.95 * 36e6 / adaptive.base_rtt_us
        assert fault.loss_share is not None
        assert 0 < fault.loss_share <= 1


def test_level_of_transports_is_against_the_same_ideal() -> None:
    """A permutation of four hosts and a silent link: an even split has 75%, the fabric 94%."""
    hole = {"kind": "blackhole", "target": "p0_t0_0--p0_t1_1", "at": "3 s", "for": "6 s"}
    pairs = [(f"h{i}", f"h{i + 4}") for i in range(4)]
    runs = {
        spray: measured(
            writes(
                topology("clos-4plane"),
                pairs,
                [hole],
                duration="12 s",
                transport={"kind": "mrc", "spray": spray},
            )
        )
        for spray in ("adaptive", "blind")
    }
    (mrc,), (blind,) = (runs[spray].faults for spray in ("adaptive", "blind"))
    lost = [rtts(fault, "capacity_lost") for fault in (mrc, blind)]
    assert lost[0] == pytest.approx(lost[1], rel=1e-3)
    for fault in (mrc, blind):
        assert fault.run is not None
        assert fault.run.level is not None
        assert fault.run.level_even is not None
        assert fault.run.level <= 1.005, "no more than the fabric allows"
        assert fault.run.level_even / fault.run.level == pytest.approx(15 / 12, rel=0.01)
    assert any("an even split" in remark for remark in runs["adaptive"].remarks_on(mrc))


def test_recovery_of_a_pair_does_not_measure_its_number_of_queue_pairs() -> None:
    hole = {"kind": "blackhole", "target": "p0_t0_0--p0_t1_1", "at": "3 s", "for": "3 s"}
    recovered = {}
    for qps in (1, 8):
        summary = measured(
            writes(
                topology("clos-4plane"),
                [("h0", "h4")],
                [hole],
                duration="8 s",
                transport={"kind": "mrc", "qps": qps},
            )
        )
        (fault,) = summary.faults
        assert len(fault.of_pairs) == 1
        assert len(fault.flows) == qps
        assert fault.run is not None
        assert rtts(fault, "recovery") == fault.run.values["recovery_rtt"]
        recovered[qps] = rtts(fault, "recovery")
    assert recovered[8] == pytest.approx(recovered[1], abs=2)


def test_evs_that_are_compared_keep_their_rate_where_all_lose() -> None:
    summary = _with_loss_everywhere("adaptive", judgement="relative")
    for flow in summary.flows:
        assert flow.run_fraction == pytest.approx(0.99, abs=0.01)


def test_roce_alone_on_its_path_gets_all_of_it_and_no_more() -> None:
    """Its packets have fewer headers than MRC's: what is attainable counts its own."""
    pair = writes(
        topology("clos-1plane-roce"), [("h0", "h4")], [], duration="3 s", transport={"kind": "roce"}
    )
    summary = trusted(measured(pair))
    (flow,) = summary.flows
    assert flow.run_fraction == pytest.approx(1.0, abs=0.003)
    assert not summary.more_than_share


def test_a_barrier_takes_no_share_of_a_port() -> None:
    """Eight hosts of a ring: the first one's port carries its data, beside seven barrier flows."""
    summary = measured(load_scenario("training"))
    names = {flow.name for flow in summary.flows}
    assert len(names) == 8
    assert "h4 -> h1" in names
    assert "h0 -> h7" not in names
    rates = [flow.undamaged_bps for flow in summary.flows]
    assert min(rates) == pytest.approx(max(rates), rel=0.01)
    (fault,) = summary.faults
    assert len(fault.flows) == 8


def test_what_was_under_way_explains_more_than_is_attainable() -> None:
    cut = {"kind": "cut", "target": "h0--p0_t0_0", "at": "1 s", "for": "1 s"}
    pair = writes(
        topology("clos-4plane"), [("h0", "h4")], [cut], duration="3 s", message_size="1 MiB"
    )
    summary = measured(pair)
    (fault,) = summary.faults
    assert (fault.ideal_fraction or 0) > 1.005
    assert any("more than the ideal split allows" in remark for remark in summary.remarks_on(fault))


@cache  # two tests look at the same run
def _with_loss_everywhere(spray: str, *, judgement: str = "absolute") -> Summary:
    """The pair of the scenario link-failure, and loss on all links between switches."""
    links = [
        f"p{plane}_t0_{rack}--p{plane}_t1_{t1}"
        for plane in range(4)
        for rack in range(2)
        for t1 in range(4)
    ]
    faults = [
        {"kind": "loss", "target": link, "probability": 0.005, "at": "2 s", "for": "36 s"}
        for link in links
    ]
    pair = writes(
        topology("clos-4plane"),
        [("h0", "h4")],
        faults,
        duration="40 s",
        both_ways=True,
        message_size="1 MiB",
        transport={"kind": "mrc", "spray": spray, "dialect": {"judgement": judgement}},
    )
    return trusted(measured(pair))


def test_what_survives_is_shared_by_all_flows_that_need_it() -> None:
    """Of eight planes with one T1 each three are dead: two hosts share five links."""
    clos = {
        "name": "one-t1",
        "planes": 8,
        "t0_per_plane": 2,
        "t1_per_plane": 1,
        "hosts_per_t0": 2,
        "dilation": 10_000,
    }
    cuts = [
        {"kind": "cut", "target": f"p{plane}_t0_0--p{plane}_t1_0", "at": "1 s", "for": "3 s"}
        for plane in range(3)
    ]
    pairs = [("h0", "h2"), ("h1", "h3")]
    summary = trusted(measured(writes(clos, pairs, cuts, duration="5 s")))
    (first, second) = summary.flows
    for fault in summary.faults:
        assert fault.surviving_fraction == pytest.approx(5 / 8, rel=0.01)
        assert fault.attainable_bps == pytest.approx(first.undamaged_bps * 5 / 8, rel=0.01)
        together_bps = sum(flow.goodput_bps or 0.0 for flow in fault.flows)
        assert together_bps <= 2 * (fault.attainable_bps or 0.0) * 1.01
    assert first.undamaged_bps == pytest.approx(second.undamaged_bps)


def test_flows_that_take_more_than_their_share_are_named() -> None:
    """With made-up shares: which flow is ahead is chance."""
    summary = _with_loss_everywhere("adaptive")

    def words(*shares: tuple[float, float]) -> str:
        """What is said of flows with these shares of the whole run and of the time in force."""
        flows = tuple(
            flow.model_copy(update={"ideal_fraction": run, "ideal_in_force_fraction": in_force})
            for flow, (run, in_force) in zip(summary.flows, shares, strict=True)
        )
        return summary.model_copy(update={"flows": flows}).more_than_share

    ahead = summary.flows[1].name
    assert words((0.7, 0.6), (1.04, 1.2)).startswith(f"{ahead} takes more than its share (104%)")
    in_force = words((0.7, 0.6), (0.97, 1.1))
    assert in_force.startswith(f"{ahead} takes more than its share during faults (110%)")
    assert "2 of 2 flows take more than their share" in words((1.3, 1.3), (1.3, 1.3))
    assert words((0.97, 0.9), (0.97, 0.9)) == ""


def test_the_worst_of_many_flows_does_not_hide_the_others() -> None:
    """A ring of 64 hosts, eight racks, one T1 of one plane dead; some flows do not cross it."""
    clos = {
        "name": "clos-64host",
        "planes": 2,
        "t0_per_plane": 8,
        "t1_per_plane": 4,
        "hosts_per_t0": 8,
        "dilation": 100_000,
    }
    pairs = [(f"h{i}", f"h{(i + 8) % 64}") for i in range(64)]
    cut = {"kind": "blackhole", "target": "p0_t0_0--p0_t1_1", "at": "5 s", "for": "6 s"}
    summary = trusted(measured(writes(clos, pairs, [cut], duration="14 s")))
    (fault,) = summary.faults
    assert len(summary.over_flows) > 0
    goodput = summary.over_flows["goodput_run_bps"]
    assert goodput.count == 64
    assert goodput.worst <= goodput.p99 <= goodput.median
    assert goodput.worst_of in {flow.name for flow in summary.flows}
    assert 0 < fault.flows_lossy <= fault.flows_affected <= 16
    recovered = fault.over_pairs["recovery_rtt"]
    values = [flow.values["recovery_rtt"] for flow in fault.flows if flow.affected]
    assert recovered.count == fault.flows_affected
    assert recovered.never == values.count(NEVER)
    assert recovered.worst == max(value for value in values if value is not None)
    noticed = fault.over_pairs["detection_rtt"]
    assert noticed.count == fault.flows_lossy
    assert noticed.never == fault.flows_lossy - fault.flows_noticed
    assert summary.messages is not None
    assert summary.messages.messages == sum(f.latency.messages for f in summary.flows if f.latency)
    assert summary.messages.median.ms <= summary.messages.p99.ms <= summary.messages.p999.ms


def test_a_fault_from_the_start_on_leaves_the_goodput_of_the_run() -> None:
    loss = {
        "kind": "loss",
        "target": "p0_t0_0--p0_t1_1",
        "probability": 0.01,
        "at": "0 s",
        "for": "2 s",
    }
    clos = topology("clos-4plane")
    summary = trusted(measured(writes(clos, [("h0", "h4")], [loss], duration="2 s")))
    (flow,) = summary.flows
    assert flow.goodput_before_bps is None
    assert flow.before_fraction is None
    assert flow.run_fraction is not None
    assert flow.run_fraction > 0.9
    verified_bps = summary.integrity.bytes_verified * 8 / 2
    assert flow.goodput_run_bps == pytest.approx(verified_bps, rel=0.1)


def test_a_fault_that_touches_no_flow_has_no_effect_to_show() -> None:
    hole = {"kind": "blackhole", "target": "h2--p0_t0_0", "at": "1 s", "for": "500 ms"}
    clos = topology("clos-4plane")
    summary = trusted(measured(writes(clos, [("h0", "h4")], [hole], duration="2 s")))
    (fault,) = summary.faults
    shown = ("detection", "stall", "in_order_delay", "recovery", "deficit")
    assert [fault.values[f"{name}_rtt"] for name in shown] == [None] * len(shown)
    assert fault.affected_in_words == "no flow used a path through it: 0 of 1 affected"


def test_what_is_lost_is_a_part_of_what_was_sent_in_the_same_time() -> None:
    """A short fault: most of what it swallows was under way as it began."""
    hole = {"kind": "blackhole", "target": "h0--p1_t0_0", "at": "1 s", "for": "5 ms"}
    clos = topology("clos-4plane")
    summary = trusted(measured(writes(clos, [("h0", "h4")], [hole], duration="2 s")))
    (fault,) = summary.faults
    assert fault.packets_lost > 0
    assert fault.loss_share is not None
    assert 0 < fault.loss_share <= 1
    for flow in fault.flows:
        assert flow.packets_lost <= flow.packets_sent
        assert flow.packets_lost_after_detection <= flow.packets_sent_after_detection


def test_a_flow_that_is_done_within_a_base_rtt_has_its_goodput_and_its_messages(
    tmp_path: Path,
) -> None:
    """Without the packet that its queue pair sends before the run, which is no message of it."""
    (tmp_path / "two.cm").write_text(
        "Nodes 8\nConnections 2\n0->4 start 0 size 1000\n1->5 start 0 size 1000000\n"
    )
    (tmp_path / "two.yaml").write_text(
        "name: two\ntopology: clos-4plane\nduration: 20 RTT\n"
        "workload: {kind: connections, matrix: two.cm}\n"
    )
    short, long = trusted(measured(load_scenario(str(tmp_path / "two.yaml")))).flows
    assert short.latency is not None
    assert long.latency is not None
    assert (short.latency.messages, long.latency.messages) == (1, 1)
    assert 0 < short.goodput_run_bps < long.goodput_run_bps


def test_a_transfer_that_is_done_does_not_count_as_struck(tmp_path: Path) -> None:
    """Three transfers; at the fault's effect one is done, one is after a third of its time."""
    (tmp_path / "three.cm").write_text(
        "Nodes 8\nConnections 3\n0->4 start 0 size 30000000\n1->5 start 0 size 1000000\n"
        "2->6 start 0 size 11000000\n"
    )
    (tmp_path / "three.yaml").write_text(
        "name: three\ntopology: clos-4plane\nduration: 10 s\n"
        "workload: {kind: connections, matrix: three.cm}\n"
        "timeline: [{at: 1 s, kind: blackhole, target: p0_t0_0--p0_t1_1, for: 4 s}]\n"
    )
    (fault,) = trusted(measured(load_scenario(str(tmp_path / "three.yaml")))).faults
    assert {flow.name for flow in fault.flows} == {"h0 -> h4", "h2 -> h6"}
    for flow in fault.flows:
        assert flow.level == pytest.approx(1.0, abs=0.02), "while it had something to send"
        assert flow.values["recovery_ms"] != NEVER
        assert flow.values["stall_rtt"] is not None
        assert flow.values["stall_rtt"] < 5
    assert fault.run is not None
    assert fault.run.level == pytest.approx(1.0, abs=0.005), "no more than the fabric allows"
    assert rtts(fault.run, "capacity_lost") == pytest.approx(rtts(fault, "capacity_lost"), abs=0.1)


def test_a_fault_after_all_transfers_strikes_none(tmp_path: Path) -> None:
    (tmp_path / "one.cm").write_text("Nodes 8\nConnections 1\n0->4 start 0 size 40000\n")
    (tmp_path / "one.yaml").write_text(
        "name: one\ntopology: clos-4plane\nduration: 20 RTT\n"
        "workload: {kind: connections, matrix: one.cm}\n"
        "timeline: [{at: 15 RTT, kind: cut, target: p0_t0_0--p0_t1_0, for: 2 RTT}]\n"
    )
    summary = trusted(measured(load_scenario(str(tmp_path / "one.yaml"))))
    assert [fault.flows_affected for fault in summary.faults] == [0]


def test_what_is_done_leaves_its_share_from_the_next_fault_on(tmp_path: Path) -> None:
    """Two transfers into one port; the short one is done before a quarter of the port is cut."""
    (tmp_path / "two.cm").write_text(
        "Nodes 8\nConnections 2\n0->4 start 0 size 16000000\n1->4 start 0 size 1000000\n"
    )
    (tmp_path / "two.yaml").write_text(
        "name: two\ntopology: clos-4plane\nduration: 5 s\n"
        "workload: {kind: connections, matrix: two.cm}\n"
        "timeline: [{at: 1 s, kind: cut, target: h4--p0_t0_1, for: 2 s}]\n"
    )
    (fault,) = trusted(measured(load_scenario(str(tmp_path / "two.yaml")))).faults
    (flow,) = fault.flows
    assert flow.level == pytest.approx(1.0, abs=0.02), "of three quarters of the port, not of half"
    assert flow.surviving_fraction == pytest.approx(0.75, abs=0.001)
    assert rtts(fault, "capacity_lost") == pytest.approx(2 / 4 / 0.15, abs=0.1)


def test_a_job_that_begins_in_a_fault_is_no_capacity_lost(tmp_path: Path) -> None:
    """It takes half of the receiver's port from the job that was there: no fault took that."""
    write = "{{kind: write_bw, pairs: [[{}, h4]], message_size: 256 KiB, bidirectional: false}}"
    (tmp_path / "jobs.yaml").write_text(
        "name: jobs\ntopology: clos-4plane\nduration: 4 s\ninterference: false\njobs:\n"
        f"  - {{name: first, workload: {write.format('h0')}}}\n"
        f"  - {{name: second, start: 2 s, workload: {write.format('h1')}}}\n"
        "timeline: [{at: 1 s, kind: blackhole, target: p0_t0_0--p0_t1_1, for: 2 s}]\n"
    )
    summary = trusted(measured(load_scenario(str(tmp_path / "jobs.yaml"))))
    (fault,) = summary.faults
    assert {flow.name for flow in fault.flows} == {"h0 -> h4"}, "there was no other at its effect"
    for effect in (fault, fault.run):
        assert effect is not None
        assert effect.surviving_fraction == pytest.approx(1.0, abs=0.001)
        assert rtts(effect, "capacity_lost") == pytest.approx(0, abs=0.01)
    for flow in summary.flows:
        assert flow.capacity_lost is not None
        assert flow.capacity_lost.rtt == pytest.approx(0, abs=0.01)


def test_the_own_baseline_begins_with_the_run() -> None:
    """Less than 10 RTT before the fault only the packet arrived that measures the base RTT."""
    hole = {"kind": "blackhole", "target": "p0_t0_0--p0_t1_1", "at": "1 s", "for": "1 s"}
    pair = writes(topology("clos-4plane"), [("h0", "h4")], [hole], duration="3 s")
    (fault,) = trusted(measured(pair)).faults
    assert rtts(fault, "deficit_baseline") == pytest.approx(rtts(fault, "deficit"), abs=0.1)


def test_a_fault_between_two_messages_of_a_schedule_does_not_strike_their_flow(
    tmp_path: Path,
) -> None:
    """Rank 1 sends, computes while the fault lasts, and sends again; rank 0 sends all the time."""
    (tmp_path / "two.goal").write_text(
        "num_ranks 8\n"
        "rank 0 { send 30000000b to 4 }\n"
        "rank 4 { recv 30000000b from 0 }\n"
        "rank 1 {\na: send 1000000b to 5\nb: calc 400000\nc: send 11000000b to 5\n"
        "b requires a\nc requires b\n}\n"
        "rank 5 {\na: recv 1000000b from 1\nb: recv 11000000b from 1\nb requires a\n}\n"
    )
    (tmp_path / "two.yaml").write_text(
        "name: two\ntopology: clos-4plane\nduration: 10 s\n"
        "workload: {kind: goal, file: two.goal}\n"
        "timeline: [{at: 1 s, kind: blackhole, target: p0_t0_0--p0_t1_1, for: 2 s},\n"
        "           {at: 5 s, kind: blackhole, target: p0_t0_0--p0_t1_1, for: 2 s}]\n"
    )
    summary = trusted(measured(load_scenario(str(tmp_path / "two.yaml"))))
    between, during = summary.faults
    assert {flow.name for flow in between.flows} == {"h0 -> h4"}
    assert {flow.name for flow in during.flows} == {"h0 -> h4", "h1 -> h5"}
    for fault in summary.faults:
        assert fault.values["recovery_ms"] != NEVER
        assert fault.level == pytest.approx(1.0, abs=0.02)
