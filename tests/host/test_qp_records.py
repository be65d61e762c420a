"""What a queue pair's events become in the tables of its host."""

from pathlib import Path

from testbed.host.qp_records import QpRecords
from testbed.host.recording import Tables
from testbed.model.fabric.addressing import ev_for_path, paths
from testbed.model.files.topologies import load_topology
from testbed.mrc import Event, Lost, Placed, RoundTrip, Spurious
from testbed.results.records import ARRIVALS, LOSSES, ROUND_TRIPS, Table, raw_path, read_raw


def test_each_event_belongs_to_the_flow_of_its_direction(tmp_path: Path) -> None:
    topology = load_topology("clos-tiny")
    host, peer = topology.hosts[:2]
    path = paths(topology, peer, host)[-1]
    ev = ev_for_path(path)
    tables = Tables(tmp_path, host.name)
    records = QpRecords(tables, topology, (host, peer), sends=3, receives=None)
    placed = Placed(7, ev, 4096, retransmitted=False, time_ns=20)
    lost = Lost(5, ev, path.plane, sent_ns=2, reason="late", time_ns=30)
    events: list[Event] = [placed, RoundTrip(ev, path.plane, 900, 10), lost]
    assert records.record_packets(events) == [lost]
    records.receives = 4
    records.record_packets([placed])
    for event in (lost, Spurious(5, ev, path.plane, sent_ns=2, time_ns=40)):
        records.record_rare(event)
    tables.close()

    def rows(table: Table) -> list[tuple[object, ...]]:
        return read_raw(raw_path(tmp_path, host.name, table), table, 0).drop("t").rows()

    assert rows(ARRIVALS) == [(4, path.plane, ev, 7, 4096, False)], "without a number: no row"
    assert rows(ROUND_TRIPS) == [(3, path.plane, ev, 900)]
    assert [(row[0], row[-1]) for row in rows(LOSSES)] == [(3, False), (3, True)]
