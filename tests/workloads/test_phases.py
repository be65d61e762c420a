"""Collectives and training steps: what is sent when, whatever the delays."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.model.flows import flows_of

from .crew import LOOK_NS, NODES, Crew

HOSTS = ["h0", "h4", "h1", "h5"]

seeds = st.integers(0, 2**32)
few = settings(max_examples=40)


def _rounds(crew: Crew) -> int:
    """Rounds that all hosts finished; they are never more than one apart."""
    counts = [len(operations) for operations in crew.finished.values()]
    assert max(counts) - min(counts) <= 1
    for operations in crew.finished.values():
        assert [operation.number for operation in operations] == list(range(len(operations)))
        for earlier, later in pairwise(operations):
            assert earlier.end_ns == later.start_ns
    return min(counts)


@few
@given(seed=seeds, slices=st.integers(1, 5), lanes=st.integers(1, 3))
def test_an_all_reduce_goes_around_the_ring_twice(seed: int, slices: int, lanes: int) -> None:
    workload = {"kind": "allreduce", "hosts": HOSTS, "size": "1000 B", "slices": slices}
    crew = Crew(workload, lanes=lanes, seed=seed)
    crew.run(20_000)
    rounds = _rounds(crew)
    assert rounds > 2
    flows = flows_of(crew.scenario)
    each = 2 * (len(HOSTS) - 1) * slices
    sent = Counter(flow for _, flow, _ in crew.posted)
    assert len(sent) == len(HOSTS) * lanes
    assert all(rounds * each <= number <= (rounds + 2) * each for number in sent.values())
    assert {post.size for _, _, post in crew.posted} == {-(-1000 // (len(HOSTS) * slices * lanes))}
    for flow in flows:
        before = next(f for f in flows if f.dst == flow.src and f.lane == flow.lane)
        arrivals = [t for t, number in crew.arrived if number == before.number]
        posts = [t for t, number, _ in crew.posted if number == flow.number]
        for j, t in enumerate(posts):
            place = j % each  # in its round: the first ones depend on nothing
            if place >= slices:
                assert t >= arrivals[j - slices]


@few
@given(seed=seeds, lanes=st.integers(1, 3))
def test_in_an_all_to_all_everybody_sends_to_everybody_once_a_round(seed: int, lanes: int) -> None:
    crew = Crew({"kind": "alltoall", "hosts": HOSTS, "size": "1000 B"}, lanes=lanes, seed=seed)
    crew.run(10_000)
    rounds = _rounds(crew)
    assert rounds > 5
    sent = Counter(flow for _, flow, _ in crew.posted)
    assert len(sent) == len(HOSTS) * (len(HOSTS) - 1) * lanes
    assert set(sent.values()) <= {rounds, rounds + 1, rounds + 2}


@few
@given(seed=seeds)
def test_in_sendrecv_nobody_is_more_than_a_round_ahead_of_whom_it_waits_for(seed: int) -> None:
    crew = Crew({"kind": "sendrecv", "hosts": HOSTS, "size": "1000 B"}, seed=seed)
    crew.run(10_000)
    sent = Counter(flow for _, flow, _ in crew.posted)
    assert len(sent) == len(HOSTS)
    assert min(sent.values()) > 5
    for flow in flows_of(crew.scenario):
        before = next(f for f in flows_of(crew.scenario) if f.dst == flow.src)
        assert sent[flow.number] <= sent[before.number] + 1


@few
@given(seed=seeds, lanes=st.integers(1, 2), hosts=st.integers(2, 5))
def test_a_training_step_ends_when_the_slowest_is_done(seed: int, lanes: int, hosts: int) -> None:
    workload = {
        "kind": "training",
        "hosts": [f"h{i}" for i in range(hosts)],
        "compute": "500 ns",
        "size": "1000 B",
    }
    crew = Crew(workload, lanes=lanes, seed=seed)
    crew.run(20_000)
    steps = _rounds(crew)
    assert steps > 2
    for number in range(1, steps):
        began = [ops[number].start_ns for ops in crew.finished.values()]
        ended = [ops[number - 1].end_ns for ops in crew.finished.values()]
        assert min(began) == min(ended)
        assert max(began) - min(began) <= 200  # the last byte of the barrier, and its completion
    for ops in crew.finished.values():
        assert all(step.end_ns - step.start_ns > 500 for step in ops)
        assert {(step.kind, step.hosts) for step in ops} == {("step", hosts)}


@pytest.mark.parametrize(
    ("kind", "sent_of_buffer"),
    [("sendrecv", 1.0), ("alltoall", 3 / 4), ("allreduce", 2 * 3 / 4), ("training", 2 * 3 / 4)],
)
@pytest.mark.parametrize("size", [1, 9, 1000, 960])
@pytest.mark.parametrize("lanes", [1, 3])
def test_the_size_of_an_operation_is_that_of_what_is_sent(
    kind: str, sent_of_buffer: float, size: int, lanes: int
) -> None:
    compute = {"compute": "1 us"} if kind == "training" else {}
    crew = Crew({"kind": kind, "hosts": HOSTS, "size": f"{size} B", **compute}, lanes=lanes)
    crew.run(20_000)
    (sent,) = {operation.size for ops in crew.finished.values() for operation in ops}
    assert sent >= size
    rounds = _rounds(crew)
    ring = [post.size for _, flow, post in crew.posted if _carries_data(crew, flow, post.size)]
    per_round = sent * sent_of_buffer * len(HOSTS)
    assert rounds * per_round <= sum(ring) <= (rounds + 2) * per_round


def _carries_data(crew: Crew, number: int, size: int) -> bool:
    """Whether a message is none of a barrier, which has one byte on the first queue pair."""
    workload, flow = crew.scenario.workloads["workload"], flows_of(crew.scenario)[number]
    ring = dict(zip(HOSTS, (*HOSTS[1:], HOSTS[0]), strict=True))
    is_ring = ring[flow.src.name] == flow.dst.name
    return workload.kind != "training" or (
        is_ring and (size > 1 or crew.scenario.longest_bytes == 1)
    )


def test_nothing_is_sent_while_hosts_compute() -> None:
    crew = Crew({"kind": "training", "hosts": HOSTS, "compute": "1 us", "size": "1000 B"})
    crew.run(10_000)
    computing = [(step.start_ns, step.start_ns + 1000) for step in crew.finished["h0"]]
    flows_of_h0 = {flow.number for flow in flows_of(crew.scenario) if flow.src.name == "h0"}
    times = [t for t, flow, _ in crew.posted if flow in flows_of_h0]
    assert not any(start <= t < end for t in times for start, end in computing)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({"kind": "permutation", "hosts": ["h0", "h1", "h2", "h3"]}, "h0h2 h1h3 h2h0 h3h1"),
        ({"kind": "permutation", "hosts": ["h0", "h1", "h2"], "shift": 1}, "h0h1 h1h2 h2h0"),
        (
            {"kind": "incast", "senders": ["h1", "h2"], "target": "h0", "victim": ["h3", "h4"]},
            "h1h0 h2h0 h3h4",
        ),
    ],
)
def test_who_writes_to_whom(workload: dict[str, object], expected: str) -> None:
    crew = Crew(workload)
    flows = flows_of(crew.scenario)
    assert " ".join(f"{flow.src.name}{flow.dst.name}" for flow in flows) == expected
    crew.run(1000)
    sent = Counter(flow for _, flow, _ in crew.posted)
    assert len(sent) == len(flows)
    assert min(sent.values()) > 4


@settings(max_examples=15)
@given(seed=seeds, slices=st.integers(1, 3), lanes=st.integers(1, 2))
def test_a_ring_for_each_rail_and_hops_within_a_node_take_no_time(
    seed: int, slices: int, lanes: int
) -> None:
    workload = {"kind": "allreduce", "size": "1200 B", "slices": slices}
    crew = Crew(workload, lanes=lanes, seed=seed, topology=NODES)
    crew.run(15_000)
    rounds, ranks, nics = _rounds_of_nodes(crew), 6, 2
    each = 2 * (ranks - 1) * slices
    sent = Counter(flow for _, flow, _ in crew.posted)
    assert len(sent) == ranks * lanes
    assert all(rounds * each <= number <= (rounds + 2) * each for number in sent.values())
    assert {post.size for _, _, post in crew.posted} == {
        -(-1200 // (ranks * nics * slices * lanes))
    }
    for flow in flows_of(crew.scenario):
        before = next(
            f for f in flows_of(crew.scenario) if f.dst == flow.src and f.lane == flow.lane
        )
        arrivals = [t for t, number in crew.arrived if number == before.number]
        posts = [t for t, number, _ in crew.posted if number == flow.number]
        for j, t in enumerate(posts):
            if j % each >= nics * slices:  # as many chunks ahead as the node has ranks
                assert t >= arrivals[j - nics * slices]


@settings(max_examples=15)
@given(seed=seeds)
def test_the_nics_of_a_node_wait_for_one_another(seed: int) -> None:
    for kind in ("allreduce", "alltoall", "training"):
        compute = {"compute": "500 ns"} if kind == "training" else {}
        crew = Crew({"kind": kind, "size": "1200 B", **compute}, seed=seed, topology=NODES)
        crew.run(15_000)
        assert _rounds_of_nodes(crew) > 2


def _rounds_of_nodes(crew: Crew) -> int:
    """Rounds that all NICs finished; one ends for all NICs of a node when the last is done."""
    for first, second in (("h0", "h1"), ("h2", "h3"), ("h4", "h5")):
        ends = [[op.end_ns for op in crew.finished[nic]] for nic in (first, second)]
        for one, other in zip(*ends, strict=False):
            assert abs(one - other) <= LOOK_NS
        assert abs(len(ends[0]) - len(ends[1])) <= 1
    operations = [op for ops in crew.finished.values() for op in ops]
    assert {op.hosts for op in operations} == {6}
    return min(len(ops) for ops in crew.finished.values())
