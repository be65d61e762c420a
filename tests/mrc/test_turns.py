"""A queue pair needs no turn while nothing has happened to it and neither deadline has passed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from testbed.mrc import (
    NEVER,
    Arrival,
    BusyState,
    Datagram,
    EvEntry,
    FixedWindow,
    MemoryTable,
    NackReason,
    QpState,
    QueuePair,
    Window,
)
from tests.virtual_time import Turns

from .harness import ADDRESSES, MS, RKEY, VA, Network, PathModel, S, make_profile

COMMANDS = ("post", "deny", "allow", "port down", "port up", "disable", "busy", "probe", "error")
MOST_ROUNDS = 20_000


class Watched(Network):
    """Commands are given while packets fly; `sparing` gives turns only to those who need one."""

    def __init__(
        self, commands: Sequence[tuple[int, str]], *, sparing: bool, **options: object
    ) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._commands = sorted(commands, reverse=True)
        self._turns = Turns(sparing=sparing)
        self.rounds = 0

    @property
    def turns(self) -> int:
        return self._turns.given

    @property
    def datagrams(self) -> list[tuple[int, int, int, int, bytes]]:
        """What was sent: side, time, EV, DSCP, bytes."""
        return [
            (
                packet.side,
                packet.time_ns,
                packet.datagram.ev,
                packet.datagram.dscp,
                packet.datagram.join(),
            )
            for packet in self.sent
        ]

    def turn(self) -> list[int | None]:
        self.rounds += 1
        assert self.rounds < MOST_ROUNDS, "a queue pair wants a turn, but needs none"
        while self._commands and self._commands[-1][0] <= self.now_ns:
            self._command(self._commands.pop()[1])
        due = self._commands[-1][0] if self._commands else None
        return [*super().turn(), due]

    def _transmit(self, side: int) -> None:
        self._turns.give(side, self.qps[side], self.now_ns, super()._transmit)

    def _command(self, command: str) -> None:
        qp, now_ns = self.qps[0], self.now_ns
        ev = min(qp.ev_states())
        match command:
            case "post" if qp.state is QpState.RTS:
                qp.post_write(99, memoryview(bytes(3000)), VA, RKEY)
            case "deny":
                qp.deny_ev(ev, now_ns)
            case "allow":
                qp.allow_ev(ev, now_ns)
            case "port down" | "port up":
                qp.port_changed(0, up=command == "port up", now_ns=now_ns)
            case "disable":
                qp.set_port_disabled(1, disabled=True, now_ns=now_ns)
            case "busy":
                self.qps[1].set_busy(BusyState(refusal=NackReason.NO_RESOURCE, share=0.5))
            case "probe":
                qp.probe_evs([ev], 300 * MS, now_ns)
            case "error" if qp.state is QpState.RTS:
                qp.modify(QpState.ERROR)


def _path(loss: float, jitter_ms: int, mark: float, trim: float, dead_ms: int) -> PathModel:
    return PathModel(
        loss=loss,
        jitter_ns=jitter_ms * MS,
        mark=mark,
        trim=trim,
        dead=[(dead_ms * MS, 900 * MS)] if dead_ms else [],
    )


@example([(100 * MS, "deny"), (400 * MS, "allow")], (0.0, 0, 0.0, 0.0, 0), [9_000], 1)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    commands=st.lists(st.tuples(st.integers(1, 800 * MS), st.sampled_from(COMMANDS)), max_size=6),
    faults=st.tuples(
        st.sampled_from([0.0, 0.05]),
        st.sampled_from([0, 30]),
        st.sampled_from([0.0, 0.3]),
        st.sampled_from([0.0, 0.1]),
        st.sampled_from([0, 200]),
    ),
    sizes=st.lists(st.integers(0, 20_000), min_size=1, max_size=6),
    seed=st.integers(0, 1 << 16),
)
def test_a_turn_that_is_not_needed_comes_to_nothing(
    commands: list[tuple[int, str]],
    faults: tuple[float, int, float, float, int],
    sizes: list[int],
    seed: int,
) -> None:
    def made(*, sparing: bool) -> Watched:
        network = Watched(
            commands,
            sparing=sparing,
            profile=make_profile(planes=2),
            seed=seed,
            default=lambda: _path(*faults),
            mtu=1024,
        )
        for number, size in enumerate(sizes):
            network.qps[number % 2].post_write(number, memoryview(bytes(size)), VA, RKEY, number)
        network.run(3 * S)
        return network

    each, some = made(sparing=False), made(sparing=True)
    assert some.datagrams == each.datagrams
    assert some.events == each.events
    assert some.completions == each.completions
    assert some.turns <= each.turns


def test_packets_of_one_queue_pair_give_others_no_turn() -> None:
    spared, served = (_transfer(sparing=sparing) for sparing in (True, False))
    assert spared.datagrams == served.datagrams
    assert spared.turns < served.turns


def _transfer(*, sparing: bool) -> Watched:
    network = Watched([], sparing=sparing, profile=make_profile(), seed=1)
    network.qps[0].post_write(0, memoryview(bytes(400_000)), VA, RKEY)
    network.run(10 * S, lambda: bool(network.completions[0]))
    assert network.completions[0]
    return network


COMMANDS_ONCE: Mapping[str, Callable[[QueuePair], object]] = {
    "post_write": lambda qp: qp.post_write(0, memoryview(b"x"), VA, RKEY),
    "post_receive": lambda qp: qp.post_receive(0),
    "deny_ev": lambda qp: qp.deny_ev(0, 0),
    "allow_ev": lambda qp: qp.allow_ev(0, 0),
    "replace_ev": lambda qp: qp.replace_ev(0, EvEntry(1 << 20, 0, (0, 9), active=True), 0),
    "probe_evs": lambda qp: qp.probe_evs([0], 300 * MS, 0),
    "port_changed": lambda qp: qp.port_changed(0, up=False, now_ns=0),
    "set_port_disabled": lambda qp: qp.set_port_disabled(0, disabled=True, now_ns=0),
    "modify": lambda qp: qp.modify(QpState.ERROR),
}


@pytest.mark.parametrize("command", COMMANDS_ONCE)
def test_a_command_needs_a_turn(command: str) -> None:
    qp = Network(make_profile()).qps[0]
    qp.transmit(0, 8)
    assert not qp.touched
    COMMANDS_ONCE[command](qp)
    assert qp.touched


def test_ports_and_answers_touch_the_queue_pairs_with_that_peer() -> None:
    here = Network(make_profile())
    demux, qp, there = here.demuxes[0], *here.qps
    neighbour = QueuePair(replace(qp.config, qpn=18, peer_qpn=19), MemoryTable())
    stranger = bytes([*ADDRESSES[1][:-1], 9])
    other = QueuePair(replace(qp.config, qpn=20, peer_address=stranger), MemoryTable())
    for added in (neighbour, other):
        demux.add(added)

    def touched(datagrams: Sequence[Datagram]) -> list[bool]:
        """Which of the three queue pairs these datagrams touch."""
        for one in (qp, neighbour, other):
            one.transmit(0, 8)
        assert not any(one.touched for one in (qp, neighbour, other))
        assert datagrams
        for datagram in datagrams:
            demux.receive(memoryview(datagram.join()), Arrival(2, datagram.dscp, 0))
        return [one.touched for one in (qp, neighbour, other)]

    there.port_changed(0, up=False, now_ns=0)
    assert touched(there.transmit(0, 8)) == [True, True, False]
    there.probe_evs([1], 300 * MS, 0)
    assert touched(there.transmit(0, 8)) == [False, False, False], "the NIC answers by itself"
    qp.probe_evs([1], 300 * MS, 0)
    answers = [
        here.demuxes[1].receive(memoryview(probe.join()), Arrival(2, probe.dscp, 0))
        for probe in qp.transmit(0, 8)
    ]
    assert touched([answer.datagram for answer in answers if answer]) == [True, True, False]
    demux.remove(neighbour)
    there.port_changed(0, up=True, now_ns=0)
    assert touched(there.transmit(0, 8)) == [True, False, False]


def test_a_window_that_others_share_may_open_at_any_time() -> None:
    for shared in (False, True):
        network = Network(make_profile(), congestion=lambda: Window(lambda: FixedWindow(4096)))
        qp = network.qps[0]
        if shared:
            qp.congestion.share()
        qp.transmit(0, 8)
        assert qp.touched == shared


def test_a_queue_pair_that_finds_no_ev_asks_for_one_in_each_round() -> None:
    qp = Network(make_profile(planes=1)).qps[0]
    qp.port_changed(0, up=False, now_ns=0)
    qp.transmit(0, 8)
    assert not qp.touched
    qp.post_write(0, memoryview(bytes(4096)), VA, RKEY)
    assert not [packet for packet in qp.transmit(1, 8) if packet.is_data]
    assert qp.touched


def test_a_failed_queue_pair_has_no_deadline() -> None:
    qp = Network(make_profile()).qps[0]
    qp.post_write(0, memoryview(bytes(4096)), VA, RKEY)
    assert qp.deadlines() == (NEVER, 0)
    qp.transmit(0, 8)
    assert not qp.touched
    qp.modify(QpState.ERROR)
    assert qp.deadlines() == (NEVER, NEVER)
    assert qp.touched
