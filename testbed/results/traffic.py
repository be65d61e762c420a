"""What the hosts of a run sent, as files of other tools: htsim's connection matrices, and CSV."""

import polars as pl

from testbed.model.errors import InputError
from testbed.model.fabric.topology import Topology
from testbed.model.graph import ARRIVED, COMPUTE, DONE, SEND, Event, Graph, all_to_all, ring, step
from testbed.model.scenario import Job
from testbed.model.workload import (
    MAX_TRANSFERS,
    AllReduce,
    AllToAll,
    Connections,
    Graphed,
    SendRecv,
    Transfer,
    Trigger,
    rail_count,
)
from testbed.results.analysis.operations import operations_of
from testbed.results.records import COMPLETIONS, OPERATIONS
from testbed.results.run_data import RunData

_PS_PER_NS = 1000
_KEYS = {DONE: "send_done_trigger", ARRIVED: "recv_done_trigger"}


def transfers_of_run(data: RunData) -> pl.DataFrame:
    """What was sent, a row for each: operations of files whole, of all else each message.

    Columns: kind, number, src, dst, `start_s` and `end_s` of the run, bytes. A row of a file is a
    transfer, send, receipt or computation that ended; `dst` is the peer of the host that did it.
    """
    parts = []
    for job, flows in zip(data.scenario.job_list, data.flows_of_jobs, strict=True):
        if isinstance(job.workload, Graphed):
            parts.append(_of_graph(data, job, job.workload))
            continue
        ends = [(flow.flow, flow.src, flow.dst) for flow in data.run.flows]
        names = pl.DataFrame(ends, schema=_ENDS, orient="row")
        rows = data.tables[COMPLETIONS].filter(pl.col("t") >= 0)
        if flows is not None:
            rows = rows.filter(pl.col("flow").is_in([*flows]))
        rows = rows.join(names, on="flow").with_columns(kind=pl.lit(job.label("message")))
        parts.append(rows.rename({"message": "number", "start_t": "start_s", "t": "end_s"}))
    columns = [part.select(_COLUMNS).cast({"number": pl.Int64}) for part in parts]
    return pl.concat(columns).sort("start_s", "end_s", "number")


_COLUMNS = ("kind", "number", "src", "dst", "start_s", "end_s", "bytes")
_ENDS = {"flow": pl.Int32, "src": pl.String, "dst": pl.String}


def _of_graph(data: RunData, job: Job, workload: Graphed) -> pl.DataFrame:
    kinds = [job.label(name) for name in workload.planned]
    rows = data.tables[OPERATIONS].filter(pl.col("kind").is_in(kinds))
    graph, numbered = workload.graph, {job.label(name) for name in workload.graph.names.values()}
    peers = [
        graph[number].peer if kind in numbered else ""  # collectives have numbers of their own
        for kind, number in rows.select("kind", "number").iter_rows()
    ]
    rows = rows.with_columns(pl.Series("dst", peers, pl.String))
    return rows.rename({"host": "src", "start_t": "start_s", "t": "end_s"})


def matrix_of_run(data: RunData) -> str:
    """The transfers of a run's matrices, and its collectives, as a connection matrix.

    Of collectives as many rounds as all of their hosts finished. The links that faults cut are not
    in it: htsim's fail for the whole run.

    Raises:
        InputError: a job has neither, or there are too many transfers.
    """
    numbers = {f"h{i}": i for i in range(data.topology.t0_per_plane * data.topology.hosts_per_t0)}
    lines: list[str] = []
    triggers: list[str] = []
    for job in data.scenario.job_list:
        matrix = _as_connections(data, job)
        first, first_trigger = len(lines), len(triggers)
        known = {trigger.id: i + 1 for i, trigger in enumerate(matrix.triggers, first_trigger)}
        start_ns = round(job.start / data.topology.dilation)
        for i, row in enumerate(matrix.matrix, first + 1):
            begins = f"start {(start_ns + row.start) * _PS_PER_NS}"
            if row.trigger is not None:
                begins = f"trigger {known[row.trigger]}"
            ends = "".join(
                f" {key} {known[number]}"
                for key in ("send_done_trigger", "recv_done_trigger")
                if (number := getattr(row, key)) is not None
            )
            pair = f"{numbers[row.src]}->{numbers[row.dst]}"
            lines.append(f"{pair} id {i} {begins} size {row.size}{ends}")
        for trigger in matrix.triggers:
            count = f" count {trigger.count}" if trigger.kind == "barrier" else ""
            triggers.append(f"trigger id {known[trigger.id]} {trigger.kind}{count}")
    head = [f"Nodes {len(numbers)}", f"Connections {len(lines)}", f"Triggers {len(triggers)}"]
    return "\n".join([*head, *lines, *triggers]) + "\n"


def _as_connections(data: RunData, job: Job) -> Connections:
    workload, topology = job.workload, data.topology
    if isinstance(workload, Connections):
        return workload
    if not isinstance(workload, SendRecv | AllReduce | AllToAll):
        expected = "a run of connections, sendrecv, allreduce or alltoall: only they end and repeat"
        raise InputError.of("--matrix", f"the workload {workload.kind}", expected, "--csv FILE")
    rounds = max(operations_of(data, job).height, 1)
    lanes = data.scenario.transport.qps
    graph = Graph({SEND: Connections.operation})
    _rounds(graph, workload, topology, lanes, rounds)
    return connections_of(graph)


def _rounds(
    graph: Graph,
    workload: SendRecv | AllReduce | AllToAll,
    topology: Topology,
    lanes: int,
    rounds: int,
) -> None:
    """Add rounds of a collective, one after another; each queue pair has its share.

    Each rail goes on by itself: that the NICs of a node wait for one another is left out.
    """
    rails = workload.rails(topology)
    size, messages = workload.longest_bytes(topology, lanes), workload.messages(topology)
    if sum(map(len, rails)) * messages * lanes * rounds > MAX_TRANSFERS:
        expected = f"{MAX_TRANSFERS:,} transfers of a matrix at most"
        raise InputError.of("--matrix", f"{rounds:,} rounds", expected, "a shorter run")
    lead = 1
    if isinstance(workload, AllReduce):
        lead = workload.slices * rail_count(workload.hosts, topology)
    for hosts in rails:
        begins = [step(graph, host) for host in hosts]
        for _ in range(rounds):
            ends = [
                all_to_all(graph, begins, size)
                if isinstance(workload, AllToAll)
                else ring(graph, begins, size, messages, lead)
                for _ in range(lanes)
            ]
            begins = [step(graph, host, of) for host, *of in zip(hosts, *ends, strict=True)]


def connections_of(graph: Graph) -> Connections:
    """The messages of a graph as transfers; operations of no length become triggers.

    Raises:
        ValueError: it has others, or some event begins several that wait for different ones.
    """
    waits: dict[int, frozenset[Event]] = {}
    for number, operation in enumerate(graph):
        if operation.kind not in (SEND, COMPUTE) or (
            operation.kind == COMPUTE and operation.amount
        ):
            raise ValueError("a connection matrix has messages only")
        waits[number] = frozenset(
            each
            for before, event in graph.waits_for(number)
            for each in (waits[before] if graph[before].kind == COMPUTE else {(before, event)})
        )
    triggers: dict[frozenset[Event], Trigger] = {}
    activated: dict[Event, int] = {}
    sends = [number for number, each in enumerate(graph) if each.kind == SEND]
    for number in sends:
        events = waits[number]
        if not events or events in triggers:
            continue
        kind, count = ("oneshot", 0) if len(events) == 1 else ("barrier", len(events))
        trigger = Trigger.model_validate({"id": len(triggers) + 1, "kind": kind, "count": count})
        triggers[events] = trigger
        for event in events:
            if activated.setdefault(event, trigger.id) != trigger.id:
                raise ValueError("an end of a transfer activates one trigger at most")
    rows = []
    for number in sends:
        operation, events = graph[number], waits[number]
        ends = {
            key: activated[number, event]
            for event, key in _KEYS.items()
            if (number, event) in activated
        }
        begins = {"trigger": triggers[events].id} if events else {}
        row = {"src": operation.host, "dst": operation.peer, "size": operation.amount}
        rows.append(Transfer.model_validate({**row, **begins, **ends}))
    return Connections(matrix=tuple(rows), triggers=tuple(triggers.values()))
