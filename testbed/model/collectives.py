"""Collectives as operations of a graph: the messages of real ones, in order; nothing is added up.

Each function takes one operation for each host, after which the host takes part, and returns one
for each, which is done when the host is: its own messages are acknowledged, and all for it have
arrived. They are two hosts or more. Sizes are in bytes.
"""

from collections.abc import Iterable, Sequence

from testbed.model.graph import ARRIVED, COMPUTE, NO_STREAM, SEND, Graph, Operation


def step(graph: Graph, host: str, after: Iterable[int] = ()) -> int:
    """Add an operation of no length, such as the beginning or the end of a host's part."""
    operation = Operation(COMPUTE, host, "", 0, stream=NO_STREAM, counted=False)
    number = graph.add(operation)
    for before in after:
        graph.after(number, before)
    return number


def ring(graph: Graph, begins: Sequence[int], size: int, messages: int, lead: int = 1) -> list[int]:
    """Messages around a ring: a host passes on what has arrived; `lead` of them go ahead.

    With 2(n - 1) messages of 1/n of a buffer it is an all-reduce among n hosts, with half as many
    an all-gather or a reduce-scatter.
    """
    hosts = [graph[begin].host for begin in begins]
    sent: list[list[int]] = [[] for _ in hosts]
    for message in range(messages):
        for i, host in enumerate(hosts):
            number = graph.add(Operation(SEND, host, hosts[(i + 1) % len(hosts)], size))
            if message < lead:
                graph.after(number, begins[i])
            else:
                graph.after(number, sent[i - 1][message - lead], ARRIVED)
            sent[i].append(number)
    ends = [step(graph, host) for host in hosts]
    for i, end in enumerate(ends):
        for number in sent[i]:
            graph.after(end, number)
        for number in sent[i - 1][-lead:]:
            graph.after(end, number, ARRIVED)
    return ends


def rings(
    graph: Graph, begins: Sequence[Sequence[int]], size: int, messages: int
) -> list[list[int]]:
    """A ring on each rail, with its share of the buffer; operations are given and returned by node.

    It enters and leaves each node by the NIC of its rail, as NCCL's do. Hops within a node take no
    time, so a node may be ahead by as many messages as it has ranks.
    """
    rails = []
    for nics in zip(*begins, strict=True):
        starts = [
            step(graph, graph[nic].host, node) for nic, node in zip(nics, begins, strict=True)
        ]
        rails.append(ring(graph, starts, size, messages, lead=len(begins[0])))
    return [
        [step(graph, graph[begin].host, ends) for begin in node]
        for node, *ends in zip(begins, *rails, strict=True)
    ]


def all_to_all(graph: Graph, begins: Sequence[int], size: int) -> list[int]:
    """A message from each host to each other, all at once."""
    hosts = [graph[begin].host for begin in begins]
    ends = [step(graph, host) for host in hosts]
    for i, host in enumerate(hosts):
        for distance in range(1, len(hosts)):
            to = (i + distance) % len(hosts)
            number = graph.add(Operation(SEND, host, hosts[to], size))
            graph.after(number, begins[i])
            graph.after(ends[i], number)
            graph.after(ends[to], number, ARRIVED)
    return ends


def in_order(
    graph: Graph, begins: Sequence[int], size: int, pairs: Iterable[tuple[int, int]]
) -> list[int]:
    """Messages between members, each after all that has arrived at its sender before."""
    hosts = [graph[begin].host for begin in begins]
    ends = [step(graph, host, (begin,)) for host, begin in zip(hosts, begins, strict=True)]
    arrived: list[list[int]] = [[] for _ in hosts]
    for source, to in pairs:
        number = graph.add(Operation(SEND, hosts[source], hosts[to], size))
        graph.after(number, begins[source])
        for before in arrived[source]:
            graph.after(number, before, ARRIVED)
        graph.after(ends[source], number)
        graph.after(ends[to], number, ARRIVED)
        arrived[to].append(number)
    return ends


def tree(count: int) -> list[tuple[int, int]]:
    """A binomial tree, from its root 0 down: the pairs of a broadcast, in order.

    Reversed, each pair too, it is that of a reduction.
    """
    distances = [1 << bit for bit in range((count - 1).bit_length())]
    return [
        (source, source + distance)
        for distance in distances
        for source in range(distance)
        if source + distance < count
    ]
