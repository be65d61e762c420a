"""A RoCE queue pair needs no turn while nothing has happened to it and no deadline has passed."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.virtual_time import Turns

from .network import MS, RKEY, VA, Network, S, Way


class Watched(Network):
    """`sparing` gives turns only to those who need one."""

    def __init__(self, *, sparing: bool, seed: int, way: Way, mark_bytes: float) -> None:
        super().__init__(
            4, seed=seed, ways={0: way, 1: Way()}, rate_bps=20e6, mark_bytes=mark_bytes
        )
        self._turns = Turns(sparing=sparing)

    @property
    def turns(self) -> int:
        return self._turns.given

    def _transmit(self, number: int) -> None:
        self._turns.give(number, self.qps[number], self.now_ns, super()._transmit)

    @property
    def datagrams(self) -> list[tuple[int, int, bytes]]:
        """What was sent: queue pair, time, bytes."""
        return [(number, time_ns, datagram.join()) for number, time_ns, datagram in self.sent]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    loss=st.sampled_from([0.0, 0.02]),
    mark=st.sampled_from([0.0, 0.2]),
    dead_ms=st.sampled_from([0, 200]),
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=8),
    seed=st.integers(0, 1 << 16),
)
def test_a_turn_that_is_not_needed_comes_to_nothing(
    loss: float, mark: float, dead_ms: int, sizes: list[int], seed: int
) -> None:
    def made(*, sparing: bool) -> Watched:
        way = Way(loss=loss, mark=mark, dead=(dead_ms * MS, 600 * MS) if dead_ms else (0, 0))
        network = Watched(sparing=sparing, seed=seed, way=way, mark_bytes=30_000)
        for number, size in enumerate(sizes):
            network.qps[number].post_write(number, memoryview(bytes(size)), VA, RKEY, number)
        network.run(300 * MS)
        network.qps[0].reroute(1, 1, network.now_ns)
        network.run(20 * S)
        return network

    each, some = made(sparing=False), made(sparing=True)
    assert some.datagrams == each.datagrams
    assert some.events == each.events
    assert some.completions == each.completions
    assert some.turns < each.turns
