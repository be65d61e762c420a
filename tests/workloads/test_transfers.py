"""WRITEs back to back and timed transfers: what is posted, when, and when a transfer ends."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.host.workloads.programs import Post, WriteBw
from testbed.model.workload import PIECE
from testbed.mrc import NEVER

from .crew import TOPOLOGY, Crew

DILATION = int(TOPOLOGY.dilation)
SIZE, DEPTH = 1000, 3

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
    done = {operation.number: operation for ops in crew.finished.values() for operation in ops}
    assert sorted(done) == list(range(len(chosen)))
    for number, ((src, _), start, size) in enumerate(chosen):
        transfer = done[number]
        assert transfer in crew.finished[src]
        assert (transfer.kind, transfer.size, transfer.hosts) == ("transfer", size, 1)
        assert transfer.start_ns == start * DILATION < transfer.end_ns
    assert sum(post.size for _, _, post in crew.posted) == sum(size for _, _, size in chosen)


@given(
    sizes=st.lists(st.integers(1, 3 * PIECE), min_size=1, max_size=20),
    gap_ns=st.integers(0, 1000),
    lanes=st.integers(1, 4),
)
def test_transfers_share_the_queue_pairs(sizes: list[int], gap_ns: int, lanes: int) -> None:
    matrix = [
        {"src": "h0", "dst": "h1", "start": f"{i * gap_ns} ns", "size": size}
        for i, size in enumerate(sizes)
    ]
    crew = Crew({"kind": "connections", "matrix": matrix}, lanes=lanes)
    crew.run(NEVER)
    carried = Counter[int]()
    for _, flow, post in crew.posted:
        carried[flow] += post.size
    assert carried.total() == sum(sizes)
    assert len(carried) == min(lanes, sum(-(-size // PIECE) for size in sizes))
    if len(carried) == lanes:
        assert max(carried.values()) - min(carried.values()) <= PIECE


def test_depth_writes_are_outstanding_on_every_flow() -> None:
    program = WriteBw((4, 9), SIZE, DEPTH)
    program.begin(0)
    posted = program.posts(0)
    assert Counter(posted) == {Post(4, SIZE): DEPTH, Post(9, SIZE): DEPTH}
    assert program.posts(1) == []
    program.completed(9, 2)
    assert program.posts(2) == [Post(9, SIZE)]
    assert program.posts(3) == []


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("endless", [1, 3])
def test_transfers_without_end_take_turns_with_those_that_end(lanes: int, endless: int) -> None:
    """Each is a flow of its own in htsim; here they share the queue pairs of their hosts."""
    ends = {"src": "h0", "dst": "h1"}
    matrix = [{**ends, "size": 0} for _ in range(endless)]
    matrix += [{**ends, "start": f"{i} ns", "size": 2 * PIECE} for i in range(8)]
    crew = Crew({"kind": "connections", "matrix": matrix}, lanes=lanes)
    crew.run(10 * DILATION)
    done = [operation.number for operation in crew.finished["h0"]]
    assert sorted(done) == [*range(endless, endless + 8)]
    used = Counter(flow for _, flow, post in crew.posted)
    assert len(used) == lanes
    shares = [*used.values()]
    assert max(shares) < 1.5 * min(shares)


def test_short_transfers_beside_one_without_end_share_the_queue_pairs() -> None:
    ends = {"src": "h0", "dst": "h1"}
    matrix = [{**ends, "size": 0}, *({**ends, "size": SIZE} for _ in range(8))]
    crew = Crew({"kind": "connections", "matrix": matrix}, lanes=4)
    crew.run(DILATION)
    short = Counter(flow for _, flow, post in crew.posted if post.size == SIZE)
    assert [*short.values()] == [2, 2, 2, 2]
