"""When packets came, as the core is told: by the kernel's timestamps, and never backwards."""

from collections.abc import Iterator

import pytest

from testbed.emulation.endpoint.nic import MAX_SWITCHES, Nic, delays_ns
from testbed.emulation.endpoint.sockets import Received
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
    offset_ns: int
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, as the packets came."""

    send_errors = 0
    overflowed = 0

    def __init__(self) -> None:
        self.waiting = []
        self.offset_ns = REALTIME_OFFSET_NS

    def flush(self) -> None:
        """Nothing is sent."""

    def receive(self) -> Iterator[Received]:
        for at_ns, hop_limit in self.waiting:
            yield Received(b"%d" % at_ns, 0, hop_limit, at_ns + self.offset_ns)
        self.waiting.clear()

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> Nic:
    set_clock(monkeypatch, REALTIME_OFFSET_NS)
    return Nic(TOPOLOGY, TOPOLOGY.hosts[0], MS, _Sockets())


def set_clock(monkeypatch: pytest.MonkeyPatch, offset_ns: int) -> None:
    monkeypatch.setattr("testbed.emulation.endpoint.nic.realtime_offset_ns", lambda: offset_ns)
    monkeypatch.setattr(
        "testbed.emulation.endpoint.nic.is_stepped", lambda known_ns: known_ns != offset_ns
    )


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
    monkeypatch.setattr("testbed.emulation.endpoint.nic.now_ns", lambda: due_ns + 3 * MS)
    nic.sockets.waiting.append((5 * MS, FAR))  # type: ignore[attr-defined]
    ((_, arrival, late_ns),) = nic.arrivals(due_ns + 2 * MS, core_ns=due_ns + MS)
    assert (arrival.rx_ns, late_ns) == (due_ns + MS, 3 * MS)


HOUR_NS = 3600 * 1000 * MS


@pytest.mark.parametrize("step_ns", [-HOUR_NS, HOUR_NS])
@pytest.mark.parametrize("stamped", ["before it", "after it"])
def test_a_packet_is_neither_held_for_an_hour_nor_late_by_one_when_the_clock_is_set(
    nic: Nic, monkeypatch: pytest.MonkeyPatch, step_ns: int, stamped: str
) -> None:
    far_ns = DELAY_NS[FAR]
    set_time_ns = 10 * MS
    assert took_in(nic, [(5 * MS, FAR)], now_ns=5 * MS + far_ns) == [(5 * MS, 5 * MS + far_ns)]
    set_clock(monkeypatch, REALTIME_OFFSET_NS + step_ns)
    if stamped == "after it":
        nic.sockets.offset_ns += step_ns  # type: ignore[attr-defined]
    now_ns = set_time_ns + far_ns
    assert took_in(nic, [(set_time_ns, FAR)], now_ns) == []
    assert took_in(nic, [], now_ns + far_ns) == [(set_time_ns, now_ns + far_ns)]
    nic.sockets.offset_ns = REALTIME_OFFSET_NS + step_ns  # type: ignore[attr-defined]
    next_ns = now_ns + 2 * far_ns  # from then on timestamps are right again
    assert took_in(nic, [(next_ns, FAR)], next_ns + far_ns) == [(next_ns, next_ns + far_ns)]


def test_a_clock_that_is_set_while_packets_are_read_holds_none_for_an_hour(
    nic: Nic,
) -> None:
    far_ns = DELAY_NS[FAR]
    took_in(nic, [], now_ns=MS)
    nic.sockets.offset_ns += HOUR_NS  # type: ignore[attr-defined]
    assert took_in(nic, [(5 * MS, FAR)], now_ns=6 * MS) == []
    assert took_in(nic, [], now_ns=6 * MS + far_ns) == [(5 * MS, 6 * MS + far_ns)]
