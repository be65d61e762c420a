"""Whole scenarios in virtual time: the transport's promises, repeatability, the books."""

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from testbed.model.fabric.names import ends_at_host
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import Impairment
from testbed.model.faults.kinds import Blackhole, Cut, Delay
from testbed.model.faults.record import FaultRecord
from testbed.model.faults.schedule import target_directions
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc, Roce
from testbed.results.analyse import analyse
from testbed.results.analysis.verdict import NOT_DELIVERED
from testbed.results.records import OF_SOME_RUNS, TABLES
from testbed.sim import Simulation, SimulationOutcome, simulate
from testbed.sim import run as sim_run

pytestmark = pytest.mark.simulated

S = 1_000_000_000


def _link_failure(**changes: object) -> Scenario:
    """The scenario of that name, shorter."""
    scenario = load_scenario("link-failure")
    (fault,) = scenario.timeline
    timeline = (fault.model_copy(update={"at": 2 * S, "for_": S}),)
    return scenario.model_copy(update={"duration": 4 * S, "timeline": timeline} | changes)


def _check(simulation: Simulation, outcome: SimulationOutcome) -> None:
    """Nothing is lost or damaged, and every packet is accounted for."""
    for flow in outcome.flows:
        assert (flow.bytes_lost, flow.bytes_corrupted, flow.errors) == (0, 0, ())
        assert flow.bytes_verified == flow.bytes_completed == flow.bytes_sent > 0
    for counts in outcome.counts.values():
        assert counts.offered == (counts.packets + counts.dropped + counts.queued + counts.on_wire)
    by_name = outcome.counts.items()
    launched = sum(counts.offered for name, counts in by_name if name.startswith("h"))
    arrived = sum(counts.packets for name, counts in by_name if ends_at_host(name))
    dropped = sum(counts.dropped for counts in outcome.counts.values())
    under_way = sum(counts.queued + counts.on_wire for counts in outcome.counts.values())
    assert launched == arrived + dropped + under_way
    refused = [host.traffic.report()["refused"] for host in simulation.hosts.values()]
    assert all("unknown_qp" not in reasons for reasons in refused)


def test_a_dead_path_is_noticed_and_analysed_like_an_emulated_run(tmp_path: Path) -> None:
    outcome = simulate(_link_failure(), tmp_path)
    summary = analyse(tmp_path, svg=True)
    assert summary.simulated
    assert (summary.verdict, summary.reasons) == ("trusted", ())
    assert summary.integrity.intact
    assert all((flow.before_fraction or 0.0) > 0.99 for flow in summary.flows)
    assert all(flow.packets_lost_elsewhere == 0 for flow in summary.flows)
    (fault,) = summary.faults
    assert fault.flows_affected == 2
    assert (fault.requested_s, fault.effective_s, fault.healed_s) == (2, 2, 3)
    assert fault.effective_uncertainty_ms == 0
    # Below the emulation's 1.2-1.5: there, packets meet the fault as they are sent, here they have
    # half of the NICs' delay behind them.
    assert fault.values["detection_rtt"] is not None
    assert 0.9 < fault.values["detection_rtt"] < 1.5
    assert fault.values["stall_rtt"] is not None
    assert fault.values["stall_rtt"] < 2
    assert fault.values["recovery_rtt"] is not None
    assert fault.values["exposure_rtt"] is not None
    assert fault.values["exposure_rtt"] < 3
    assert sum(outcome.faults[0].proof.values()) >= fault.packets_lost > 10
    assert "simulated" in (tmp_path / "report.html").read_text()
    assert "simulated" in (tmp_path / "figures/goodput.svg").read_text()
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["simulated"] is True
    assert not (tmp_path / "raw").exists()


def test_a_seed_repeats_a_run_to_the_bit(tmp_path: Path) -> None:
    runs = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        directory = tmp_path / name
        directory.mkdir()
        hole = Blackhole(target=("p0_t0_0--p0_t1_1",), at="500 ms", for_="500 ms")
        simulate(_link_failure(seed=seed, duration=3 * S // 2, timeline=(hole,)), directory)
        tables = {path.name: path.read_bytes() for path in directory.glob("*.parquet")}
        assert len(tables) == len(TABLES) - len(OF_SOME_RUNS)
        runs[name] = tables, (directory / "run.json").read_text()
    assert runs["a"] == runs["b"]
    assert runs["a"][0]["arrivals.parquet"] != runs["c"][0]["arrivals.parquet"]


def test_a_permutation_of_eight_hosts_shares_the_fabric() -> None:
    """With a fixed window queues form where paths collide; nearly all of the rate is used.

    They collide because a quarter of each flow's paths are held back.
    """
    changes = {"duration": 3 * S, "seed": 1, "transport": Mrc(backups=0.25, congestion="fixed")}
    scenario = load_scenario("permutation").model_copy(update=changes)
    simulation = Simulation(scenario)
    outcome = simulation.run()
    _check(simulation, outcome)
    payload = [flow.bytes_verified * 8 / 3 / flow.ports_bps for flow in outcome.flows]
    assert min(payload) > 0.85
    assert max(flow.packets_lost for flow in outcome.flows) == 0
    inner = [c for name, c in outcome.counts.items() if "_t1_" in name]
    last = [c for name, c in outcome.counts.items() if ">h" in name]
    assert sum(c.marked for c in inner) > 0
    assert sum(c.marked for c in last) == 0
    assert sum(c.full for c in outcome.counts.values()) == 0


def test_faults_take_effect_to_the_ns() -> None:
    faults = (
        Blackhole(target=("p0_t0_0--p0_t1_1",), at="1 s", for_="1 s"),
        Cut(target=("h4--p1_t0_1",), at="1000000001 ns", for_="30 s"),
    )
    simulation = Simulation(_link_failure(timeline=faults, duration=3 * S))
    outcome = simulation.run()
    _check(simulation, outcome)
    hole, cut = outcome.faults
    t0_ns = outcome.t0_ns
    assert (hole.requested_ns, hole.effective_ns, hole.healed_ns) == (
        t0_ns + S,
        t0_ns + S,
        t0_ns + 2 * S,
    )
    assert (cut.effective_after_ns, cut.effective_ns) == (t0_ns + S + 1, t0_ns + S + 1)
    assert cut.healed_ns is None
    assert _dropped(hole) == outcome.counts["p0_t0_0>p0_t1_1"].blackholed + (
        outcome.counts["p0_t1_1>p0_t0_0"].blackholed
    )
    assert _dropped(cut) == sum(outcome.counts[name].cut for name in ("h4>p1_t0_1", "p1_t0_1>h4"))


def _dropped(fault: FaultRecord) -> int:
    dropped: int = sum(fault.proof.values())
    assert dropped > 0
    return dropped


def test_a_delay_adds_to_the_round_trip_while_it_lasts() -> None:
    """Four T0-T1 links a round trip, 5 us each, dilated: nothing is lost for it."""
    delay = Delay(target=("links",), extra="5 us", at="1 s", for_="1 s")
    simulation = Simulation(_link_failure(timeline=(delay,)))
    seen: list[int] = []

    def look(_now_ns: int, _: object) -> None:
        for host in simulation.hosts.values():
            connections = host.traffic.connections.values()
            seen.extend(connection.qp.sample().smoothed_ns for connection in connections)

    for t in (0.9, 1.9, 3.9):
        simulation.engine.at(round((t + 0.3) * S), look)
    outcome = simulation.run()
    _check(simulation, outcome)
    before, during, after = (min(seen[i : i + 2]) for i in (0, 2, 4))
    assert during - before > 4 * 40_000_000
    assert after - before < 40_000_000


def test_at_full_speed_the_same_happens() -> None:
    """Dilation 1: every time ten thousand times shorter, the same packets."""
    slow = _link_failure()
    (fault,) = slow.timeline
    assert isinstance(fault, Blackhole)
    fast = slow.model_copy(
        update={
            "topology": slow.topology.model_copy(update={"dilation": 1}),
            "duration": slow.duration // 10_000,
            "timeline": (
                fault.model_copy(update={"at": fault.at // 10_000, "for_": fault.for_ // 10_000}),
            ),
        }
    )
    outcomes = []
    for scenario in (slow, fast):
        simulation = Simulation(scenario)
        outcomes.append(simulation.run())
        _check(simulation, outcomes[-1])
    dilated, real = outcomes
    assert real.base_rtt_ns == pytest.approx(dilated.base_rtt_ns / 10_000, rel=0.001)
    for a, b in zip(dilated.flows, real.flows, strict=True):
        assert b.ports_bps == pytest.approx(a.ports_bps * 10_000, rel=0.005)
        assert b.bytes_verified == pytest.approx(a.bytes_verified, rel=0.02)
        assert b.packets_lost == pytest.approx(a.packets_lost, abs=6)
    assert real.flows[0].packets_lost > 5


def _one_packet_lost(ack_timeout: str, **changes: int | None) -> Scenario:
    """One packet outstanding at a time over RoCE, on a path that is dead for a second."""
    scenario = load_scenario("link-failure-roce")
    (fault,) = scenario.timeline
    told = {
        "transport": Roce(ack_timeout=ack_timeout),
        "workload": scenario.workloads["workload"].model_copy(
            update={"message_size": 4096, "depth": 1, "bidirectional": False}
        ),
        "timeline": (fault.model_copy(update={"target": ("h0>p0_t0_0",), "at": S, "for_": S}),),
    }
    return scenario.model_copy(update=told | changes)


def test_a_sender_that_waits_for_longer_than_the_run_has_lost_nothing_yet(tmp_path: Path) -> None:
    """All that is outstanding was dropped, the next timeout is thousands of round trips away."""
    outcome = simulate(_one_packet_lost("67 ms", duration=3 * S), tmp_path)
    (flow,) = outcome.flows
    assert flow.bytes_lost == flow.bytes_under_way == 4096
    assert flow.errors == ()
    summary = analyse(tmp_path, drawn=False)
    assert summary.reasons[0] == NOT_DELIVERED
    assert not summary.integrity.intact


@pytest.mark.parametrize(("drain", "outstanding"), [(None, 0), (S // 2, 4096)])
def test_a_run_waits_for_its_last_writes_as_long_as_it_is_told_to(
    tmp_path: Path, drain: int | None, outstanding: int
) -> None:
    """The timeout comes after a second and more, within 60 base RTTs."""
    scenario = _one_packet_lost("140 us", duration=2 * S, drain=drain)
    (flow,) = simulate(scenario, tmp_path).flows
    assert flow.bytes_under_way == outstanding


def test_a_pair_in_a_fabric_of_a_hundred_thousand_hosts_costs_what_its_paths_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing lists all nodes or links, in the run, its analysis, its figures and its report."""
    file = tmp_path / "real.yaml"
    file.write_text(
        "name: real\n"
        "topology: {base: clos-8plane, name: x, planes: 8, t0_per_plane: 512, t1_per_plane: 256,"
        " hosts_per_t0: 256, port_rate: 30 Gbit/s, dilation: 10000}\n"
        "duration: 6 RTT\n"
        "workload: {kind: write_bw, pairs: [[h0, h131071]], message_size: 64 KiB}\n"
        "timeline: [{kind: blackhole, target: p0_t0_511, at: 2 RTT, for: 2 RTT}]\n"
    )

    def refuse(topology: Topology) -> None:
        raise AssertionError(f"the whole fabric {topology.name} is listed")

    for name in ("hosts", "switches", "nodes", "links", "adjacency"):
        monkeypatch.setattr(Topology, name, property(refuse))
    directory = tmp_path / "run"
    directory.mkdir()
    simulate(load_scenario(str(file)), directory)
    summary = analyse(directory)
    assert summary.integrity.intact
    (fault,) = summary.faults
    assert fault.flows_affected == 2


def test_the_hosts_of_a_run_share_a_few_open_files(tmp_path: Path) -> None:
    """A process may have a thousand by default, and a simulation has thousands of hosts."""
    at_first = len(list(Path("/proc/self/fd").iterdir()))
    simulation = Simulation(load_scenario("permutation"), tmp_path)
    grown = len(list(Path("/proc/self/fd").iterdir())) - at_first
    simulation.close()
    assert grown < len(simulation.hosts)


def test_queue_pairs_are_sampled_less_often_where_there_would_be_too_many_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim_run, "MOST_QP_SAMPLES", 20)
    simulate(_link_failure(duration=S // 2, timeline=(), drain=0), tmp_path)
    samples = pl.read_parquet(tmp_path / "qp.parquet").filter(pl.col("t") > 0)
    assert samples.height == 20
    assert samples["flow"].n_unique() == 2


def test_incast_shares_the_last_hop() -> None:
    """Three to one: the last hop trims instead of dropping, and everything arrives."""
    scenario = load_scenario("link-failure")
    workload = scenario.workloads["workload"].model_copy(
        update={"pairs": (("h0", "h4"), ("h1", "h4"), ("h5", "h4")), "bidirectional": False}
    )
    simulation = Simulation(
        scenario.model_copy(update={"workload": workload, "duration": 2 * S, "timeline": ()})
    )
    outcome = simulation.run()
    _check(simulation, outcome)
    last = [counts for name, counts in outcome.counts.items() if name.endswith(">h4")]
    assert sum(counts.trimmed for counts in last) > 0
    assert sum(counts.full for counts in outcome.counts.values()) == 0


def test_a_host_that_loses_a_port_tells_its_peer(tmp_path: Path) -> None:
    """Both ends leave the plane because they know, not because packets are lost."""
    cut = Cut(target=("h0--p1_t0_0",), at="1 s", for_="1 s")
    scenario = _link_failure(timeline=(cut,), duration=3 * S)
    outcome = simulate(scenario, tmp_path)
    events = pl.read_parquet(tmp_path / "ev_events.parquet")
    rtt_s = outcome.base_rtt_ns / S
    for flow in outcome.flows:
        own = events.filter(pl.col("flow") == flow.flow)
        left = own.filter((pl.col("reason") == "port down") & ~pl.col("active"))
        assert set(left["plane"]) == {1}
        late = 0 if flow.src == "h0" else 1.5 * rtt_s
        assert all(1 <= t <= 1 + late for t in left["t"])
        back = own.filter((pl.col("plane") == 1) & pl.col("active") & (pl.col("t") > 2))
        assert len(back) >= len(left) > 0  # losses may have condemned one before
        assert max(back["t"]) < 2 + 4 * rtt_s
        (lost, sent) = flow.packets_lost, flow.packets_sent
        assert 0 < lost < 0.02 * sent


def test_corruption_on_every_link_lets_nothing_wrong_into_memory() -> None:
    simulation = Simulation(_link_failure(timeline=()))
    topology = simulation.scenario.topology
    for plane in range(topology.planes):
        for direction in target_directions(topology, f"p{plane}") or ():
            simulation.fabric.impair(direction, Impairment(corrupt=0.01))
    outcome = simulation.run()
    _check(simulation, outcome)
    damaged = sum(counts.corrupted for counts in outcome.counts.values())
    refused = Counter[str]()
    for host in simulation.hosts.values():
        refused.update(host.traffic.report()["refused"])
    del refused["duplicates"]  # sent again, not damaged
    assert damaged > 200
    assert refused.total() <= damaged
    assert refused.total() > 0.9 * damaged, (
        "but for bits that the iCRC masks, and two in one packet"
    )
    assert refused["bad_icrc"] > 0.85 * damaged, "the others have a header that cannot be read"
