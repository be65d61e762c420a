"""A peer that lies, or does what was not agreed: counted by reason, and no other peer notices.

Host 0 writes to host 1, which is bad, and to host 2. It gets one bad packet in the middle. What a
bad packet must not do at all, it does not do to either queue pair, to the nanosecond. What it may
do to its own queue pair, it does to that one only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from testbed.mrc import CompletionStatus, Datagram, EvChanged
from testbed.mrc.config import Capabilities
from testbed.mrc.congestion.control import FixedWindow, Window
from testbed.mrc.constants import EndpointOp, EvMark, NackReason, NakCode
from testbed.mrc.wire.control import Ack, EndpointRequest, EndpointResponse, Nack, Sack
from testbed.mrc.wire.kinds import Opcode, Write

from .bad_input import VERSION_AT, control_bytes, seal
from .harness import MS, RKEY, VA, S, make_profile
from .star import MTU, Flying, Star, address
from .test_wire import write_bytes

HERE, BAD, GOOD = 0, 1, 2
TO_BAD, TO_GOOD = 16, 18
"""The queue pairs of host 0; those of its peers follow each."""

MESSAGES, PACKETS = 30, 4
AT_NS = 400 * MS
ENDS = address(BAD), address(HERE), 0
FAR = 1_000_000
NOT_AGREED = Capabilities(dynamic_mpr=False, trim_nack=False, immediates=2)


class Hosts(Star):
    """The three hosts: what happens at each queue pair, and one bad packet."""

    def __init__(self, bad: Callable[["Hosts"], bytes] | None = None) -> None:
        super().__init__(
            make_profile(planes=2),
            [(HERE, BAD), (HERE, GOOD)],
            lambda: Window(lambda: FixedWindow(16 * MTU)),
            capabilities=NOT_AGREED,
            peer_capabilities=NOT_AGREED,
        )
        self.bad = bad
        self.happened: dict[int, list[object]] = {qpn: [] for qpn in self._qps}
        self.statuses: dict[int, list[CompletionStatus]] = {TO_BAD: [], TO_GOOD: []}
        for flow in self.flows:
            for wr_id in range(MESSAGES):
                flow.sender.post_write(wr_id, self._body[: PACKETS * MTU], VA, RKEY)

    def turn(self) -> list[int | None]:
        if self.bad is not None and self.now_ns >= AT_NS:
            bad, self.bad = self.bad, None
            self.throw(bad(self), HERE)
        deadlines = [self._transmit(local, peer, qp) for local, peer, qp in self._qps.values()]
        for qpn, (_, _, qp) in self._qps.items():
            completions = qp.poll_cq()
            self.happened[qpn] += [
                *qp.events(),
                *((self.now_ns, completion) for completion in completions),
            ]
            if qpn in self.statuses:
                self.statuses[qpn] += [completion.status for completion in completions]
        return deadlines

    def throw(self, data: bytes, host: int) -> None:
        """Have these bytes arrive now."""
        flying: Flying = host, Datagram(0, self.dscp.control, data, b"", b""), True
        self.arrive(self.now_ns, flying)

    def refused(self) -> dict[str, int]:
        """Packets that host 0 refused, by reason."""
        return {reason: n for reason, n in self._demuxes[HERE].refused().items() if n}

    def counter(self, name: str) -> int:
        """A counter of the queue pair with the bad peer."""
        return int(getattr(self.flows[0].sender.counters, name))


def finished(bad: Callable[[Hosts], bytes] | None = None) -> Hosts:
    hosts = Hosts(bad)
    hosts.run(20 * S)
    return hosts


@pytest.fixture(scope="module")
def undisturbed() -> Hosts:
    hosts = finished()
    assert hosts.statuses == {
        qpn: [CompletionStatus.SUCCESS] * MESSAGES for qpn in (TO_BAD, TO_GOOD)
    }
    assert hosts.refused() == {}
    middle = [one for one in hosts.happened[TO_BAD] if isinstance(one, tuple)]
    assert middle[0][0] < AT_NS < middle[-1][0]
    return hosts


def a_write(qpn: int) -> bytes:
    write = Write(*ENDS, qpn, 0, Opcode.WRITE_ONLY, False, False, 0, 0, 0, VA, RKEY, 4, b"evil")
    return write_bytes(write)


def a_sack(**fields: object) -> Sack:
    sack = Sack(*ENDS, TO_BAD, False, 0, 0, EvMark.NONE, False, 0, 0, 0, 0, 1, 0, 0, 0, False, 0, 0)
    return replace(sack, **fields)  # type: ignore[arg-type]


def other_version() -> bytes:
    data = bytearray(control_bytes(Ack(*ENDS, TO_BAD, 0, 0)))
    data[VERSION_AT] |= 1
    return seal(data)


def answer_to(hosts: Hosts, peer: int) -> bytes:
    """An answer of the bad peer to a request that is outstanding to `peer`."""
    endpoint = hosts._demuxes[HERE].endpoint
    number = endpoint.ask(address(peer), EndpointOp.EV_PROBE, lambda _: pytest.fail("answered"))
    return control_bytes(EndpointResponse(*ENDS, EndpointOp.EV_PROBE, number, 0))


def update_of(host: int) -> bytes:
    """A port status update of a host: none of its ports is reachable."""
    request = EndpointRequest(
        address(host), address(HERE), 0, EndpointOp.PORT_STATUS_UPDATE, 5, 0, 0
    )
    return control_bytes(request)


@dataclass(frozen=True)
class Lie:
    """A bad packet, and what it is counted as."""

    what: str
    packet: Callable[[Hosts], bytes]
    reason: str


LIES = (
    Lie("ACK of the unsent", lambda _: control_bytes(Ack(*ENDS, TO_BAD, FAR, 9)), "implausible"),
    *(
        Lie(
            f"NAK {code.name} of the unsent",
            lambda _, code=code: control_bytes(Ack(*ENDS, TO_BAD, FAR, 9, code)),  # type: ignore[misc]
            "implausible",
        )
        for code in NakCode
    ),
    *(
        Lie(
            f"NACK {reason.name} of the unsent",
            lambda _, reason=reason: control_bytes(Nack(*ENDS, TO_BAD, 0, reason, 0, FAR, 0)),  # type: ignore[misc]
            "implausible",
        )
        for reason in NackReason
    ),
    Lie("SACK of the unsent", lambda _: control_bytes(a_sack(cack_psn=FAR)), "implausible"),
    Lie(
        "SACK whose bitmap has the unsent",
        lambda _: control_bytes(a_sack(sack_offset=30_000, bitmap=1)),
        "implausible",
    ),
    Lie(
        "answer to no request",
        lambda _: control_bytes(EndpointResponse(*ENDS, EndpointOp.EV_PROBE, 77, 0)),
        "unknown_request",
    ),
    Lie("answer in another's name", lambda hosts: answer_to(hosts, GOOD), "unknown_request"),
    Lie(
        "NAK of a completed request",
        lambda _: control_bytes(Ack(*ENDS, TO_BAD, 0, 0, NakCode.REMOTE_ACCESS_ERROR)),
        "nak_of_completed",
    ),
    Lie("another transport version", lambda _: other_version(), "wrong_version"),
    Lie("port update of a stranger", lambda _: update_of(9), "not_a_peer"),
    Lie(
        "ACK to another's queue pair",
        lambda _: control_bytes(Ack(*ENDS, TO_GOOD, 3, 1)),
        "not_a_peer",
    ),
    Lie(
        "NAK to another's queue pair",
        lambda _: control_bytes(Ack(*ENDS, TO_GOOD, 3, 1, NakCode.REMOTE_ACCESS_ERROR)),
        "not_a_peer",
    ),
    Lie("WRITE to another's queue pair", lambda _: a_write(TO_GOOD), "not_a_peer"),
    Lie("packet to no queue pair", lambda _: a_write(999), "unknown_qp"),
)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.what)
def test_a_lie_is_counted_and_changes_nothing(lie: Lie, undisturbed: Hosts) -> None:
    hosts = finished(lie.packet)
    assert hosts.refused() == {lie.reason: 1}
    assert hosts.happened == undisturbed.happened


def outstanding(hosts: Hosts) -> int:
    """The oldest PSN on its way to the bad peer."""
    return int(hosts.flows[0].sender._requester._scoreboard.oldest_seq)


@pytest.mark.parametrize(
    ("packet", "status"),
    [
        (
            lambda hosts: Ack(*ENDS, TO_BAD, outstanding(hosts), 1, NakCode.REMOTE_ACCESS_ERROR),
            CompletionStatus.REMOTE_ACCESS_ERROR,
        ),
        (
            lambda hosts: Ack(*ENDS, TO_BAD, outstanding(hosts), 1, NakCode.INVALID_REQUEST),
            CompletionStatus.REMOTE_INVALID_REQUEST,
        ),
    ],
)
def test_a_nak_ends_the_queue_pair_that_it_is_for_and_no_other(
    packet: Callable[[Hosts], Ack], status: CompletionStatus
) -> None:
    hosts = finished(lambda hosts: control_bytes(packet(hosts)))
    assert hosts.flows[0].sender.failed
    (failed,) = {*hosts.statuses[TO_BAD]} - {CompletionStatus.SUCCESS, CompletionStatus.FLUSHED}
    assert failed is status
    the_other_is_untouched(hosts)


def test_ports_that_a_peer_reports_lost_concern_its_queue_pair_only() -> None:
    hosts = finished(lambda _: update_of(BAD))
    assert not hosts.flows[0].sender.active_evs()
    assert 0 < len(hosts.statuses[TO_BAD]) < MESSAGES
    the_other_is_untouched(hosts)


@pytest.mark.parametrize(
    "packet",
    [
        lambda _: control_bytes(a_sack(mpr=1)),
        lambda hosts: control_bytes(
            Nack(*ENDS, TO_BAD, 0, NackReason.TRIMMED, 0, outstanding(hosts), 0)
        ),
    ],
    ids=["window in a SACK", "NACK of a trim"],
)
def test_what_was_not_agreed_is_counted(packet: Callable[[Hosts], bytes]) -> None:
    hosts = finished(packet)
    assert hosts.counter("unagreed") == 1
    assert hosts.statuses[TO_BAD] == [CompletionStatus.SUCCESS] * MESSAGES
    the_other_is_untouched(hosts)


def test_more_than_agreed_fails_the_peer_and_no_other() -> None:
    """Three WRITEs with immediate at once, behind one that is missing: two were agreed."""

    def third(hosts: Hosts) -> bytes:
        writes = [
            Write(
                *ENDS, TO_BAD, psn, Opcode.WRITE_ONLY_IMMEDIATE, True, False, psn - 1, psn, 0,
                VA, RKEY, 4, b"more", 7,
            )
            for psn in (1, 2, 3)
        ]  # fmt: skip
        for write in writes[:-1]:
            hosts.throw(write_bytes(write), HERE)
        return write_bytes(writes[-1])

    hosts = finished(third)
    assert hosts.counter("excess_immediates") == 1
    assert hosts.statuses[TO_BAD] == [CompletionStatus.SUCCESS] * MESSAGES
    the_other_is_untouched(hosts)


def test_a_window_beyond_the_agreed_one_is_refused() -> None:
    far = Write(*ENDS, TO_BAD, 0, Opcode.WRITE_ONLY, False, False, 0, 0, 0, VA, RKEY, 4, b"evil")
    beyond = write_bytes(far._replace(psn=NOT_AGREED.mpr * 128))
    hosts = finished(lambda _: beyond)
    assert hosts.refused() == {"out_of_window": 1}
    the_other_is_untouched(hosts)


def the_other_is_untouched(hosts: Hosts) -> None:
    """Every WRITE to the good peer completes, no EV is judged, nothing was lost or came twice."""
    assert hosts.statuses[TO_GOOD] == [CompletionStatus.SUCCESS] * MESSAGES
    assert not [one for one in hosts.happened[TO_GOOD] if isinstance(one, EvChanged)]
    counters = hosts.flows[1].sender.counters
    assert (counters.lost, counters.retransmitted, counters.implausible) == (0, 0, 0)
    assert hosts.flows[1].receiver.counters.duplicates == 0
    assert hosts.flows[1].receiver.counters.bytes_placed == MESSAGES * PACKETS * MTU
