"""Transfers of a connection matrix: each begins at its time and is over when all has arrived."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.model.workload import PIECE

from .crew import TOPOLOGY, Crew

DILATION = int(TOPOLOGY.dilation)

transfers = st.lists(
    st.tuples(
        st.sampled_from([("h0", "h1"), ("h1", "h0"), ("h0", "h2"), ("h3", "h0")]),
        st.integers(0, 3),
        st.integers(1, 6 * PIECE),
    ),
    min_size=1,
    max_size=8,
)


@given(chosen=transfers, seed=st.integers(0, 2**32), lanes=st.integers(1, 3))
def test_every_transfer_is_sent_whole_and_not_before_its_time(
    chosen: list[tuple[tuple[str, str], int, int]], seed: int, lanes: int
) -> None:
    matrix = [
        {"src": src, "dst": dst, "start": f"{start} ns", "size": size}
        for (src, dst), start, size in chosen
    ]
    crew = Crew({"kind": "connections", "matrix": matrix}, lanes=lanes, seed=seed)
    crew.run(10 * DILATION)
    done = {one.number: one for ops in crew.finished.values() for one in ops}
    assert sorted(done) == list(range(len(chosen)))
    for number, ((src, _), start, size) in enumerate(chosen):
        one = done[number]
        assert one in crew.finished[src]
        assert (one.kind, one.size, one.hosts) == ("transfer", size, 1)
        assert one.start_ns == start * DILATION < one.end_ns
    assert sum(post.size for _, _, post in crew.posted) == sum(size for _, _, size in chosen)
