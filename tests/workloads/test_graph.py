"""Operations that wait for one another: triggers of connection matrices, at one host and across."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.host.workloads.programs import Operation
from testbed.model.workload import PIECE, Connections
from testbed.mrc import NEVER

from .crew import TOPOLOGY, Crew

DILATION = int(TOPOLOGY.dilation)


def _run(matrix: list[dict[str, Any]], triggers: list[dict[str, Any]], **kwargs: Any) -> Crew:
    rows = [{"size": 1000, **row} for row in matrix]
    crew = Crew({"kind": "connections", "matrix": rows, "triggers": triggers}, **kwargs)
    crew.run(NEVER)
    return crew


def _done(crew: Crew) -> dict[int, Operation]:
    return {each.number: each for done in crew.finished.values() for each in done}


@given(size=st.integers(1, 4 * PIECE), lanes=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_transfer_begins_when_the_one_before_it_is_acknowledged(
    size: int, lanes: int, seed: int
) -> None:
    matrix = [
        {"src": "h0", "dst": "h1", "size": size, "send_done_trigger": 1},
        {"src": "h0", "dst": "h2", "trigger": 1, "send_done_trigger": 2},
        {"src": "h0", "dst": "h3", "trigger": 2},
    ]
    triggers = [{"id": number, "kind": "oneshot"} for number in (1, 2)]
    first, second, third = (
        _done(_run(matrix, triggers, lanes=lanes, seed=seed))[i] for i in range(3)
    )
    assert (second.start_ns, third.start_ns) == (first.end_ns, second.end_ns)


@given(size=st.integers(1, 4 * PIECE), lanes=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_receiver_passes_on_what_has_arrived_whole(size: int, lanes: int, seed: int) -> None:
    """It learns of the last piece, and does not wait for the acknowledgement."""
    matrix = [
        {"src": "h0", "dst": "h1", "size": size, "recv_done_trigger": 7},
        {"src": "h1", "dst": "h2", "trigger": 7},
    ]
    crew = _run(matrix, [{"id": 7, "kind": "oneshot"}], lanes=lanes, seed=seed)
    first, second = _done(crew)[0], _done(crew)[1]
    assert second.start_ns == crew.arrived[-1][0] < first.end_ns
    assert len(crew.arrived) == -(-size // PIECE)


def test_only_messages_that_somebody_waits_for_are_announced() -> None:
    matrix: list[dict[str, Any]] = [
        {"src": "h0", "dst": "h1"},
        {"src": "h0", "dst": "h1", "send_done_trigger": 1},
        {"src": "h0", "dst": "h2", "trigger": 1},
    ]
    crew = _run(matrix, [{"id": 1, "kind": "oneshot"}])
    assert not crew.arrived
    assert {post.immediate for *_, post in crew.posted} == {None}


def test_what_happens_elsewhere_comes_by_a_message_of_one_byte() -> None:
    matrix = [
        {"src": "h0", "dst": "h1", "send_done_trigger": 1},
        {"src": "h3", "dst": "h2", "trigger": 1},
    ]
    crew = _run(matrix, [{"id": 1, "kind": "oneshot"}])
    done = _done(crew)
    assert sorted(done) == [0, 1]  # the signal is not one of those that were asked for
    assert [post.size for *_, post in crew.posted] == [1000, 1, 1000]
    assert done[0].end_ns < done[1].start_ns == crew.arrived[0][0]
    assert crew.scenario.signals == {2}


@pytest.mark.parametrize(
    ("kind", "begins_after"),
    [("oneshot", [1, 1, 1]), ("multishot", [1, 2, 3]), ("barrier", [3] * 3)],
)
@pytest.mark.parametrize("home", ["h0", "h7"])
def test_each_kind_of_trigger_begins_its_transfers(
    kind: str, begins_after: list[int], home: str
) -> None:
    """At the host that counts, and at one that has to be told."""
    matrix: list[dict[str, Any]] = [
        {"src": "h0", "dst": f"h{i}", "start": f"{i} us", "send_done_trigger": 5} for i in (1, 2, 3)
    ]
    matrix += [{"src": home, "dst": f"h{i}", "trigger": 5} for i in (4, 5, 6)]
    done = _done(_run(matrix, [{"id": 5, "kind": kind, "count": 3}]))
    ends = sorted(done[i].end_ns for i in range(3))
    waited = [ends[needed - 1] for needed in begins_after]
    if home == "h0":
        assert [done[i].start_ns for i in (3, 4, 5)] == waited
    else:
        late = [done[i].start_ns - end for i, end in zip((3, 4, 5), waited, strict=True)]
        assert all(0 < ns <= 100 for ns in late)


@given(
    data=st.data(),
    hosts=st.integers(2, 5),
    count=st.integers(1, 12),
    kind=st.sampled_from(["oneshot", "multishot", "barrier"]),
)
def test_every_transfer_is_sent_once_whatever_waits_for_what(
    data: st.DataObject, hosts: int, count: int, kind: str
) -> None:
    """Each waits for earlier ones only, so all of them end."""
    pair = st.tuples(st.integers(0, hosts - 1), st.integers(1, hosts - 1))
    matrix: list[dict[str, Any]] = []
    counted: Counter[int] = Counter()
    begun: Counter[int] = Counter()
    for _ in range(count):
        src, step = data.draw(pair)
        row: dict[str, Any] = {"src": f"h{src}", "dst": f"h{(src + step) % hosts}"}
        row["size"] = data.draw(st.integers(1, 2 * PIECE))
        ready = [number for number in counted if counted[number] > begun[number]]
        if chosen := data.draw(st.sampled_from([0, *ready])):
            row["trigger"] = chosen
            begun[chosen] += 1
        for key in ("send_done_trigger", "recv_done_trigger"):
            if (number := data.draw(st.integers(0, 4))) and not begun[number]:
                row[key] = number
                counted[number] += 1
        matrix.append(row)
    triggers = [{"id": i, "kind": kind, "count": counted[i]} for i in range(1, 5)]
    workload = {"kind": "connections", "matrix": matrix, "triggers": triggers}
    assert not [*Connections.model_validate(workload).problems(TOPOLOGY)]
    crew = Crew(workload, seed=data.draw(st.integers(0, 99)), lanes=data.draw(st.integers(1, 2)))
    crew.run(NEVER)
    assert sorted(_done(crew)) == [*range(count)]
    sent = sum(post.size for *_, post in crew.posted if post.size > 1)
    assert abs(sent - sum(row["size"] for row in matrix)) <= count
