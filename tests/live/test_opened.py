"""Flows that begin while a fabric with a prompt is watched."""

from collections.abc import Collection, Sequence

import numpy as np

from testbed.live.stream.measures import Tables
from testbed.live.stream.records import Opened, RunState, StreamRecord
from testbed.live.stream.stream import Beginning, Stream
from testbed.model.files.topologies import load_topology
from testbed.model.run_files.content import OpenedFlow
from testbed.results.records import EV_EVENTS

TINY = load_topology("clos-tiny")
BEGINNING = Beginning(
    topology=TINY,
    scenario=None,
    run="shell",
    simulated=False,
    live=True,
    base_rtt_s=0.13,
    duration_s=0,
)


def opened(number: int, src: str, dst: str) -> OpenedFlow:
    return OpenedFlow(
        flow=number, src=src, dst=dst, lane=0, qpn=16, psn=number, program="h0-1.lock"
    )


def first_rows(*flows: int) -> Tables:
    """The rows by which flows tell of one EV each."""
    count = len(flows)

    def words(word: str) -> "np.ndarray":
        return np.array([word] * count, dtype=object)

    columns = {
        "t": np.full(count, 0.05),
        "flow": np.array(flows),
        "ev": np.zeros(count, dtype=np.int64),
        "plane": np.zeros(count, dtype=np.int64),
        "old": words(""),
        "new": words("GOOD"),
        "active": np.ones(count, dtype=bool),
        "reason": words("start"),
    }
    return {EV_EVENTS: columns}


def test_flows_are_opened_in_order_and_each_with_its_evs() -> None:
    stream, state = Stream(BEGINNING, 0), RunState()
    snapshot = stream.snapshot([])
    assert (snapshot.flows, snapshot.judged, snapshot.step_s) == ((), False, 0.1)
    assert snapshot.management == "198.18.0.1"
    state.take(snapshot)

    def step(
        number: int, tables: Tables, new: Sequence[OpenedFlow] = (), ended: Collection[int] = ()
    ) -> list[StreamRecord]:
        times = number / 10, (number + 1) / 10
        records = [*stream.step(tables, [], [], *times, new, ended)]
        for record in records:
            state.take(record)
        return [record for record in records if isinstance(record, Opened)]

    both = opened(0, "h0", "h1"), opened(1, "h1", "h0")
    assert step(0, first_rows(1), both) == [], "flow 0 has told of no EV yet"
    (record,) = step(1, first_rows(0))
    assert isinstance(record, Opened)
    assert [flow.name for flow in record.flows] == ["h0 → h1", "h1 → h0"]
    assert sorted((ev.flow, ev.crosses[0]) for ev in record.evs) == [
        (0, "h0>p0_t0_0"),
        (1, "h1>p0_t0_1"),
    ]
    assert step(2, {}, ended=[1]) == []
    assert state.ended == {1}
    assert state.snapshot is not None
    assert [flow.flow for flow in state.snapshot.flows] == [0, 1]
    assert state.roles == {"0:0": (True, "GOOD"), "1:0": (True, "GOOD")}
