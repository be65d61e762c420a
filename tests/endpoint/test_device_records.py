"""Commands to the programs of a watched prompt: what their devices carry out and answer."""

import fcntl
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from testbed.emulation.endpoint.device_records import SOCKET_SUFFIX, DeviceRecords
from testbed.host.operator import KEPT_EVENTS, HostOperator
from testbed.host.recording import Tables
from testbed.host.traffic import Connection
from testbed.model.fabric.nodes import Node
from testbed.model.files.scenarios import load_scenario
from testbed.model.operator.commands import (
    Command,
    DenyEvs,
    DisablePort,
    EnablePort,
    ListEvs,
    ProbeEvs,
)
from testbed.model.run_files.content import (
    FLOWS,
    OUTCOMES,
    DeviceOutcome,
    OpenedFlow,
    RunStart,
    lines_of,
)
from testbed.model.run_files.layout import START
from testbed.model.transport import Mrc
from testbed.mrc import EvChanged, EvState, Placed, QueuePair
from testbed.results.records import EV_EVENTS, read_raw
from testbed.sandbox.channel import Channel
from testbed.sandbox.system_calls import socket_name
from testbed.sim import Simulation

PORT_KINDS = ("disable", "enable")
T0_NS = 400_000_000
NOW_NS = 1_000_000_000


def incast() -> Iterator[tuple[Node, list[Connection]]]:
    """The hosts of an incast with their queue pairs, of which all but one host's have one end."""
    hosts = Simulation(load_scenario("incast")).hosts
    for node, host in sorted(hosts.items(), key=lambda each: -len(each[1].traffic.connections)):
        yield node, [*host.traffic.connections.values()]


@contextmanager
def recording(
    raw: Path, host: Node, connections: list[Connection], transport: Mrc | None = None
) -> Iterator[tuple[DeviceRecords, list[QueuePair]]]:
    """The records of a device of a host, and its queue pairs."""
    evs = {connection.plan.peer: connection.plan.evs for connection in connections}
    topology = load_scenario("incast").topology
    (raw / START).write_text(RunStart(t0_ns=T0_NS, base_rtt_ns=1).model_dump_json())
    with DeviceRecords(raw, topology, host, evs.__getitem__, None, transport) as records:
        qps = [connection.qp for connection in connections]
        yield records, [qp for qp in qps if isinstance(qp, QueuePair)]


def calling(raw: Path, command: dict[str, Any], until_ns: int = NOW_NS) -> Channel:
    """A connection to the device on which it is sent a command."""
    (file,) = raw.glob(f"*{SOCKET_SUFFIX}")
    connection = socket.socket(socket.AF_UNIX)
    with socket_name(file) as name:
        connection.connect(name)
    channel = Channel(connection.detach())
    channel.send({"operate": 1, "until_ns": until_ns, "command": command})
    return channel


def answer(
    raw: Path, records: DeviceRecords, command: dict[str, Any], until_ns: int = NOW_NS
) -> dict[str, Any]:
    channel = calling(raw, command, until_ns)
    answers: list[dict[str, Any]] = []

    def read() -> None:
        while not answers:
            answers.extend(channel.receive() or ())

    reader = Thread(target=read)
    reader.start()
    while not answers:
        records.work(NOW_NS)
    reader.join()
    channel.close()
    records.work(NOW_NS)
    content: dict[str, Any] = answers[0]["content"]
    return content


def receives(records: DeviceRecords, qp: QueuePair) -> None:
    """Data arrives on a queue pair."""
    ev = next(iter(qp.ev_states()))
    records.end_round([(qp, [Placed(0, ev, 100, False, NOW_NS)])], NOW_NS)


def test_the_ports_of_a_program_that_only_receives_can_be_disabled(tmp_path: Path) -> None:
    """For queue pairs that are used later, too."""
    host, connections = next(incast())
    with recording(tmp_path, host, connections) as (records, (first, second, *_)):
        receives(records, first)
        disable = {"kind": "disable", "host": host.name, "plane": 1}
        states = [port["state"] for port in answer(tmp_path, records, disable)["ports"]]
        assert states == ["enabled", "disabled", "enabled", "enabled"]
        receives(records, second)
        assert first.down_planes() == second.down_planes() == {1}


def test_a_port_stays_disabled_for_programs_that_are_used_later(tmp_path: Path) -> None:
    """Started before or after the command; until it is enabled."""
    host, connections = next(incast())
    disable, enable = ({"kind": kind, "host": host.name, "plane": 1} for kind in PORT_KINDS)
    with recording(tmp_path, host, connections[1:]) as (idle, (idle_qp, *_)):
        socket_of_idle = next(tmp_path.glob(f"*{SOCKET_SUFFIX}"))
        hidden = socket_of_idle.rename(socket_of_idle.with_suffix(".hidden"))
        with recording(tmp_path, host, connections[:1]) as (first, (qp,)):
            receives(first, qp)
            answer(tmp_path, first, disable)
        receives(idle, idle_qp)
        assert idle_qp.down_planes() == {1}
        hidden.rename(socket_of_idle)
        listed = answer(tmp_path, idle, {"kind": "ports", "host": host.name})["ports"]
        assert [port["state"] for port in listed] == ["enabled", "disabled", "enabled", "enabled"]
        answer(tmp_path, idle, enable)
    with recording(tmp_path, host, connections[2:]) as (last, (last_qp, *_)):
        receives(last, last_qp)
        assert last_qp.down_planes() == frozenset()


def test_ports_that_different_programs_have_disabled_stay_disabled(tmp_path: Path) -> None:
    """One may have missed a command, because it was stopped."""
    host, connections = next(incast())
    first, second = ({"kind": "disable", "host": host.name, "plane": plane} for plane in (1, 2))
    with recording(tmp_path, host, connections[1:]) as (stopped, (qp, *_)):
        receives(stopped, qp)
        own_socket = next(tmp_path.glob(f"*{SOCKET_SUFFIX}"))
        hidden = own_socket.rename(own_socket.with_suffix(".hidden"))
        with recording(tmp_path, host, connections[:1]) as (other, (other_qp,)):
            receives(other, other_qp)
            answer(tmp_path, other, first)
        hidden.rename(own_socket)
        answer(tmp_path, stopped, second)
    with recording(tmp_path, host, connections[2:]) as (last, (last_qp, *_)):
        receives(last, last_qp)
        assert last_qp.down_planes() == {1, 2}


def test_a_command_that_comes_after_its_sender_gave_up_changes_nothing(tmp_path: Path) -> None:
    host, connections = next(incast())
    with recording(tmp_path, host, connections) as (records, (qp, *_)):
        receives(records, qp)
        disable = {"kind": "disable", "host": host.name, "plane": 1}
        refusal = answer(tmp_path, records, disable, until_ns=NOW_NS - 1)
        assert "too late" in refusal["errors"][0]["found"]
        assert qp.down_planes() == frozenset()


def sends(records: DeviceRecords, connection: Connection, qp: QueuePair) -> None:
    assert connection.sender is not None
    connection.sender.post(100)
    (datagram, *_) = [each for each in qp.transmit(NOW_NS, 1) if each.is_data]
    records.sent(qp, datagram, 0, NOW_NS)


def test_what_became_of_flows_is_recorded_when_the_device_is_closed(tmp_path: Path) -> None:
    """Of queue pairs that are there no more as well, and of what was under way then."""
    host, connections = [*incast()][1]
    with recording(tmp_path, host, connections) as (records, (qp, *_)):
        sends(records, connections[0], qp)
        records.end_round([], NOW_NS)  # the queue pair has been destroyed
        records.refused = {"stray": 3, "none": 0}
    (line,) = (tmp_path / OUTCOMES).read_text().splitlines()
    outcome = DeviceOutcome.model_validate_json(line)
    assert (outcome.host, outcome.refused, outcome.received) == (host.name, {"stray": 3}, ())
    (sent,) = outcome.sent
    assert (sent.flow, sent.bytes_sent, sent.bytes_unaccounted) == (0, 100, 100)
    assert (sent.packets_sent, sent.packets_lost, sent.errors) == (1, 0, ())


def test_all_events_are_answered_and_those_that_nobody_took_are_kept(tmp_path: Path) -> None:
    """As many as are kept are more than a packet of a UNIX socket holds."""
    host, connections = [*incast()][1]
    with recording(tmp_path, host, connections) as (records, (qp, *_)):
        sends(records, connections[0], qp)
        ev = next(iter(qp.ev_states()))
        change = EvChanged(ev, 0, EvState.GOOD, EvState.SKIP, "an ECN mark", True, NOW_NS)
        records.end_round([(qp, [change] * KEPT_EVENTS)], NOW_NS)
        events = {"kind": "events", "host": host.name}
        calling(tmp_path, events).close()
        for _ in range(3):
            records.work(NOW_NS)
        listed = answer(tmp_path, records, events)
        assert len(listed["events"]) == KEPT_EVENTS
        assert {event["t"] for event in listed["events"]} == {0.6}, "from the start of the fabric"
        assert listed["dropped"] == 0
        assert answer(tmp_path, records, events)["events"] == []


def test_a_flow_begins_with_the_evs_and_roles_that_its_queue_pair_has(tmp_path: Path) -> None:
    """Those of a profile of the program's own, and what a controller has denied before."""
    host, connections = [*incast()][1]
    others = [
        replace(connection, plan=replace(connection.plan, evs=usual))
        for connection in connections
        for usual in [tuple(replace(ev, active=False) for ev in connection.plan.evs[1:])]
    ]
    (denied, *used) = [ev.value for ev in connections[0].plan.evs]
    with recording(tmp_path, host, others) as (records, (qp, *_)):
        qp.deny_ev(denied, NOW_NS)
        sends(records, connections[0], qp)
    (file,) = tmp_path.glob("*.ev_events.bin")
    rows = read_raw(file, EV_EVENTS, 0).select("ev", "old", "new", "active").rows()
    assert sorted(rows) == sorted(
        [(denied, "", "DENIED", False), *((ev, "", "GOOD", True) for ev in used)]
    )


@pytest.mark.parametrize("ending", ["the queue pair is destroyed", "the device is closed"])
def test_a_probe_of_what_ends_meanwhile_is_answered(tmp_path: Path, ending: str) -> None:
    """At once: nobody would come back to it. So are commands for a queue pair that has ended."""
    host, connections = [*incast()][1]
    answers: list[dict[str, Any]] = []
    name = f"{host.name}->{connections[0].plan.peer.name}"
    with recording(tmp_path, host, connections) as (records, (qp, *_)):
        sends(records, connections[0], qp)
        probe = ProbeEvs.model_validate({"flow": name, "within": "60 min"})
        records.handle(probe, answers.append, NOW_NS)
        assert not answers
        if "destroyed" in ending:
            records.end_round([], 2 * NOW_NS)
            (error,) = answers.pop()["errors"]
            assert (error["found"], "destroyed" in error["expected"]) == (name, True)
            commands: list[Command] = [probe, ListEvs(flow=name), DenyEvs(flow=name, ev=("p0",))]
            for command in commands:
                records.handle(command, answers.append, NOW_NS)
    assert answers
    assert all(each["errors"][0]["found"] == name for each in answers)


def test_ports_cannot_be_disabled_where_a_program_sprays_blindly(tmp_path: Path) -> None:
    """As in every run: it would use their EVs all the same."""
    host, connections = next(incast())
    answers: list[dict[str, Any]] = []
    with recording(tmp_path, host, connections, Mrc(spray="blind")) as (records, (qp, *_)):
        receives(records, qp)
        records.handle(DisablePort(host=host.name, plane=0), answers.append, NOW_NS)
    assert "adaptive spraying" in answers[0]["errors"][0]["expected"]


def test_programs_and_workload_of_a_host_know_the_same_disabled_ports(tmp_path: Path) -> None:
    """Whether a program had the device open when the port was disabled, or enabled again."""
    host, _ = next(incast())
    scenario = load_scenario("incast")
    workload = HostOperator(scenario, host, Tables(None, host.name))

    def opened() -> DeviceRecords:
        return DeviceRecords(tmp_path, scenario.topology, host, lambda _: (), workload)

    def command(kind: type[DisablePort | EnablePort], plane: int) -> Command:
        return kind(host=host.name, plane=plane)

    (tmp_path / START).write_text(RunStart(t0_ns=T0_NS, base_rtt_ns=1).model_dump_json())
    workload.handle(command(DisablePort, 0), NOW_NS, lambda _: None)
    with opened() as records:
        assert records.disabled_ports() == [0]
        records.handle(command(DisablePort, 1), lambda _: None, NOW_NS)
    workload.handle(command(EnablePort, 1), NOW_NS, lambda _: None)
    with opened() as records:
        assert records.disabled_ports() == [0]


def test_a_line_that_another_host_is_adding_is_read_whole(tmp_path: Path) -> None:
    host, connections = next(incast())
    line = OpenedFlow(flow=9, src="h1", dst="h0", lane=0, qpn=1, psn=1, program="p")
    text = line.model_dump_json().encode() + b"\n"
    errors = list[Exception]()
    with (
        recording(tmp_path, host, connections) as (records, (first, *_)),
        (tmp_path / FLOWS).open("ab", buffering=0) as file,
    ):

        def receive() -> None:
            try:
                receives(records, first)
            except ValueError as error:
                errors.append(error)

        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(text[:20])
        reader = Thread(target=receive)
        reader.start()
        reader.join(timeout=0.2)
        file.write(text[20:])
        fcntl.flock(file, fcntl.LOCK_UN)
        reader.join()
    assert not errors


def test_a_line_that_a_killed_host_has_not_finished_is_none(tmp_path: Path) -> None:
    (tmp_path / FLOWS).write_text('{"flow": 1}\n{"flow": 2, "sr')
    assert lines_of(tmp_path / FLOWS) == ['{"flow": 1}']
