"""Graphs of operations: what can never happen, and what is recorded of them."""

import pytest

from testbed.model.graph import ANY, ARRIVED, COMPUTE, DONE, RECEIVE, SEND, Graph, Operation


def _graph() -> Graph:
    """h0 sends to h1, which computes and answers; a third host is told."""
    graph = Graph({SEND: "send", RECEIVE: "recv", COMPUTE: "calc"})
    send = graph.add(Operation(SEND, "h0", "h1", 10, tag=3))
    receive = graph.add(Operation(RECEIVE, "h1", "h0", 10, tag=3))
    compute = graph.add(Operation(COMPUTE, "h1", "", 50))
    answer = graph.add(Operation(SEND, "h1", "h0", 20, tag=4))
    last = graph.add(Operation(RECEIVE, "h0", "h1", 20, tag=4))
    told = graph.add(Operation(COMPUTE, "h2", "", 7))
    graph.after(compute, receive)
    graph.after(answer, compute)
    graph.after(told, send, ARRIVED)
    graph.after(last, send)
    return graph


def _to_nobody() -> Graph:
    graph = _graph()
    graph.add(Operation(SEND, "h0", "", 10))
    return graph


def test_operations_that_can_all_happen_are_not_stuck() -> None:
    graph = _graph()
    assert graph.stuck() == []
    assert graph.planned() == {"send": [10, 20], "recv": [10, 20], "calc": [0, 0]}
    assert graph.pairs() == (("h0", "h1"), ("h1", "h0"), ("h1", "h2"))


def test_a_circle_is_stuck_and_all_that_waits_for_it() -> None:
    graph = _graph()
    graph.after(1, 2)  # the receipt after the computation that follows it
    assert graph.stuck() == [1, 2, 3, 4]


def test_a_receipt_without_a_message_is_stuck_unless_it_takes_any() -> None:
    for tag, stuck in ((9, [6]), (ANY, [])):
        graph = _graph()
        graph.add(Operation(RECEIVE, "h2", "h0", 1, tag=tag))
        assert [i for i in graph.stuck() if graph[i].kind == RECEIVE] == ([7] if stuck else [])


def test_a_recorded_graph_is_the_same() -> None:
    graph = _graph()
    again = Graph.unpacked(graph.packed())
    assert again == graph
    assert [*again] == [*graph]
    waits = [[*graph.waits_for(i)] for i in range(len(graph))]
    assert [[*again.waits_for(i)] for i in range(len(graph))] == waits
    assert [again.is_announced(i) for i in range(len(graph))] == [
        graph.is_announced(i) for i in range(len(graph))
    ]
    again.after(3, 2, DONE)
    assert again != graph


@pytest.mark.parametrize(
    "change", ["", "x", "{}\n", "[" * 100_000, "cut", "lengths", "host", "peer"]
)
def test_what_is_no_recorded_graph_is_refused(change: str) -> None:
    text = _graph().packed()
    head, _, data = text.partition("\n")
    changed = {
        "cut": text[:-40],
        "lengths": f"{head.replace('[7', '[8', 1)}\n{data}",
        "host": text.replace(', "h2"', ""),
        "peer": _to_nobody().packed(),
    }.get(change, change)
    with pytest.raises(ValueError, match="operations that the testbed has recorded"):
        Graph.unpacked(changed)
