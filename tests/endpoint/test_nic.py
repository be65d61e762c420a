"""When packets came, as the core is told: by the kernel's timestamps, and never backwards."""

from collections.abc import Iterator
from ipaddress import IPv6Address

import pytest

from testbed.endpoint.nic import MAX_SWITCHES, Nic, delays_ns
from testbed.endpoint.sockets import Received
from testbed.model.fabric.topology import Topology
from testbed.mrc.constants import HOP_LIMIT

TOPOLOGY = Topology(
    name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2, dilation=1000
)
NEAR, FAR = HOP_LIMIT - 1, HOP_LIMIT - MAX_SWITCHES
DELAY_NS = delays_ns(TOPOLOGY)
REALTIME_OFFSET_NS = 1_700_000_000_000_000_000
MS = 1_000_000


class _Sockets:
    """What the kernel has received: (monotonic time of its timestamp, hop limit)."""

    waiting: list[tuple[int, int]]

    def __init__(self, _: IPv6Address) -> None:
        self.waiting = []

    def receive(self) -> Iterator[Received]:
        for at_ns, hop_limit in self.waiting:
            yield Received(b"%d" % at_ns, 0, hop_limit, at_ns + REALTIME_OFFSET_NS)
        self.waiting.clear()


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> Nic:
    monkeypatch.setattr("testbed.endpoint.nic.HostSockets", _Sockets)
    monkeypatch.setattr("testbed.endpoint.nic.realtime_offset_ns", lambda: REALTIME_OFFSET_NS)
    return Nic(TOPOLOGY, TOPOLOGY.hosts[0], round_ns=MS)


def took_in(
    nic: Nic, received: list[tuple[int, int]], now_ns: int, core_ns: int = 0
) -> list[tuple[int, int]]:
    """For each packet handed over at `now_ns`: its kernel timestamp, and the time it came."""
    nic.sockets.waiting.extend(received)  # type: ignore[attr-defined]
    return [(int(packet), arrival.rx_ns) for packet, arrival, _ in nic.arrivals(now_ns, core_ns)]


def test_a_packet_came_when_it_was_due_however_late_it_is_looked_at(nic: Nic) -> None:
    far_ns = DELAY_NS[FAR]
    assert took_in(nic, [(5 * MS, FAR)], now_ns=5 * MS + far_ns - 1) == []
    assert took_in(nic, [], now_ns=5 * MS + far_ns + 700 * MS) == [(5 * MS, 5 * MS + far_ns)]


def test_what_comes_over_a_shorter_path_comes_first(nic: Nic) -> None:
    near_ns, far_ns = DELAY_NS[NEAR], DELAY_NS[FAR]
    assert near_ns < far_ns
    taken = took_in(nic, [(5 * MS, FAR), (5 * MS + 1, NEAR)], now_ns=10 * MS + far_ns)
    assert taken == [(5 * MS + 1, 5 * MS + 1 + near_ns), (5 * MS, 5 * MS + far_ns)]


def test_the_core_is_told_of_nothing_from_before_what_it_was_told_last(nic: Nic) -> None:
    near_ns, far_ns = DELAY_NS[NEAR], DELAY_NS[FAR]
    due_ns = 5 * MS + far_ns
    assert took_in(nic, [(5 * MS, FAR)], now_ns=due_ns, core_ns=due_ns + 1) == [
        (5 * MS, due_ns + 1)
    ]
    # Received before, seen only now: the kernel's other CPU was late with it.
    early, later = (MS, NEAR), (6 * MS + far_ns - near_ns, NEAR)
    core_ns = due_ns + MS // 2
    assert took_in(nic, [early, later], now_ns=due_ns + 9 * MS, core_ns=core_ns) == [
        (MS, core_ns),
        (later[0], due_ns + MS),
    ]


def test_how_late_the_process_is_with_a_packet_is_told_apart(
    nic: Nic, monkeypatch: pytest.MonkeyPatch
) -> None:
    due_ns = 5 * MS + DELAY_NS[FAR]
    monkeypatch.setattr("testbed.endpoint.nic.now_ns", lambda: due_ns + 3 * MS)
    nic.sockets.waiting.append((5 * MS, FAR))  # type: ignore[attr-defined]
    ((_, arrival, late_ns),) = nic.arrivals(due_ns + 2 * MS, core_ns=due_ns + MS)
    assert (arrival.rx_ns, late_ns) == (due_ns + MS, 3 * MS)
