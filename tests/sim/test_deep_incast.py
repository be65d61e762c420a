"""Many more senders than the last hop's queue holds packets, and faults that condemn many EVs."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.mrc import Datagram, QueuePair
from testbed.mrc.wire.kinds import Opcode
from testbed.sim import Simulation
from testbed.sim.host import Host

pytestmark = [pytest.mark.simulated, pytest.mark.long]

PACKETS = 25
PACKET_BYTES = 4096
OPCODE_BYTE = 48  # behind IPv6 and UDP
OUTER_BYTES = 54
PROBES = (Opcode.RELIABILITY_PROBE, Opcode.ENDPOINT_REQUEST)


def incast(directory: Path, senders: int, t0s: int, rate: str) -> Simulation:
    """Each of so many hosts sends 100 kB to host 0, all at once, over one plane."""
    lines = [f"{i}->0 id {i} start 0 size {PACKETS * PACKET_BYTES}" for i in range(1, senders + 1)]
    matrix = [f"Nodes {t0s * t0s}", f"Connections {senders}", *lines]
    (directory / "incast.cm").write_text("\n".join(matrix))
    shape = f"planes: 1, t0_per_plane: {t0s}, t1_per_plane: {t0s}, hosts_per_t0: {t0s}"
    (directory / "incast.yaml").write_text(
        f"name: incast\n"
        f"topology: {{base: clos-1plane, name: x, {shape}, port_rate: {rate}, dilation: 10000}}\n"
        "duration: 500 s\n"
        "workload: {kind: connections, matrix: incast.cm}\n"
    )
    return Simulation(load_scenario(str(directory / "incast.yaml")))


def slowest(simulation: Simulation) -> float:
    """The time in which all messages complete, in that of the last hop for their bytes."""
    topology = simulation.scenario.topology
    senders = [s for host in simulation.hosts.values() for s in host.traffic.senders.values()]
    packets = len(senders) * PACKETS
    ideal_ns = packets * topology.wire_bytes * 8e9 / topology.port_rate_bps
    ideal_ns += topology.one_way_ns(3)
    waiting, ended_ns = senders, [0]

    def look(now_ns: int, _: object) -> None:
        waiting[:] = [s for s in waiting if s.counts.bytes_completed < PACKETS * PACKET_BYTES]
        ended_ns[0] = now_ns
        if waiting:
            simulation.engine.at(now_ns + topology.propagation_rtt_ns // 8, look)

    base_rtt_ns = simulation.measure_base_rtt()
    start_ns = simulation.engine.now_ns + base_rtt_ns
    for host in simulation.hosts.values():
        simulation.engine.at(start_ns, host.begin)
    simulation.engine.at(start_ns, look)
    while waiting and simulation.engine.now_ns < start_ns + 3 * ideal_ns:
        simulation.engine.run(simulation.engine.now_ns + base_rtt_ns)
    assert not waiting
    return (ended_ns[0] - start_ns) / ideal_ns


def count(simulation: Simulation) -> Counter[tuple[str, bool, str]]:
    """Packets and bytes that hosts send from now on: by host, whether it is a probe, unit."""
    counts = Counter[tuple[str, bool, str]]()

    def watch(host: Host, launch: Callable[[Datagram, bytes, int], int]) -> None:
        def watched(datagram: Datagram, peer: bytes, now_ns: int) -> int:
            size = OUTER_BYTES + len(datagram.header) + len(datagram.payload)
            probe = datagram.header[OPCODE_BYTE] in PROBES
            counts[host.plan.host.name, probe, "packets"] += 1
            counts[host.plan.host.name, probe, "bytes"] += size + len(datagram.trailer)
            return launch(datagram, peer, now_ns)

        host.traffic._launch = watched

    for host in simulation.hosts.values():
        watch(host, host.traffic._launch)
    return counts


def share(counts: Counter[tuple[str, bool, str]], unit: str, host: str | None = None) -> float:
    """The share of probes in what all hosts sent, or one."""
    sent = {
        kind: sum(
            n
            for (name, probe, u), n in counts.items()
            if (probe, u) == (kind, unit) and host in (None, name)
        )
        for kind in (False, True)
    }
    return sent[True] / (sent[True] + sent[False])


@pytest.mark.parametrize(
    ("senders", "t0s", "rate"),
    [
        (200, 15, "50 Gbit/s"),  # almost as many for each packet of the BDP as 512 at 100 Gbit/s
        (1023, 32, "100 Gbit/s"),
    ],
)
def test_hundreds_of_senders_keep_the_last_hop_busy_with_data(
    senders: int, t0s: int, rate: str, tmp_path: Path
) -> None:
    simulation = incast(tmp_path, senders, t0s, rate)
    counts = count(simulation)
    assert slowest(simulation) <= 1.2
    assert share(counts, "packets") <= 0.05
    for host in simulation.hosts.values():
        for connection in host.traffic.connections.values():
            assert isinstance(connection.qp, QueuePair)
            assert not connection.qp.failed


def test_what_a_silent_t0_condemns_is_probed_with_a_fiftieth_of_the_bytes(tmp_path: Path) -> None:
    """An all-to-all of 16 hosts; a quarter of them lose a plane, with 16 EVs to each peer."""
    file = tmp_path / "silent.yaml"
    file.write_text(
        "name: silent\n"
        "topology: {base: clos-4plane, name: x, t0_per_plane: 4, t1_per_plane: 16,"
        " hosts_per_t0: 4, port_rate: 30 Gbit/s, dilation: 10000}\n"
        "duration: 60 RTT\n"
        "workload: {kind: alltoall, size: 1 MiB}\n"
        "transport: {kind: mrc, evs: 64}\n"
        "timeline: [{kind: blackhole, target: p0_t0_0, at: 10 RTT, for: 40 RTT}]\n"
    )
    simulation = Simulation(load_scenario(str(file)))
    counts = count(simulation)
    simulation.run()
    assert max(share(counts, "bytes", host.name) for host in simulation.hosts) <= 0.02
