"""How many probes there may be: for a queue pair, for a NIC, and while none is answered."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.mrc import CcProfile, Event, EvState, LossReport, Nscc, Window
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.endpoint import ProbeBudget
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.ev.probing import ProbeRoom
from testbed.mrc.recovery.loss import INCAST_RTTS
from testbed.mrc.recovery.retry import RetryAction, RetryTimer

from .harness import MS, Network, PathModel, S, make_profile
from .test_qp import check_success, write_all

RTT_NS = 100 * MS
MTU = 4096
PROBE_BYTES = 160


@dataclass
class Nic:
    """Queue pairs of one NIC, each with an engine, whose EVs all died at time 0 but one.

    Attributes:
        alive: whether probes are answered, a tenth of an RTT later.
        probes: (time, queue pair, EV) of each probe.
    """

    qps: int
    evs: int
    window: int
    payload_per_rtt: int
    alive: bool = False
    now_ns: int = 10**12
    probes: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget = ProbeBudget()
        profile = make_profile(planes=1, active=self.evs, backups=0, max_condemned_share=1.0)
        self.engines = []
        self.rooms = []
        for seed in range(self.qps):
            rtt, events = RttEstimator(RTT_NS), list[Event]()
            self.engines.append(EvEngine(profile, rtt, Random(seed), events))
            self.rooms.append(ProbeRoom(rtt, MTU))
            self.rooms[-1].share(self.budget)

    def condemn(self) -> None:
        for engine in self.engines:
            for ev in [*engine.states()][1:]:
                engine.report_loss(ev, "late", self.now_ns)

    def live(self, rtts: float) -> None:
        for _ in range(round(rtts * 10)):
            self.budget.count_sent(self.payload_per_rtt // 10)
            for number, engine in enumerate(self.engines):
                room = self.rooms[number]
                for ev, probe_id in engine.due_probes(self.now_ns, room, self.window):
                    self.probes.append((self.now_ns, number, ev))
                    if self.alive:
                        engine.probe_answered(ev, probe_id, self.now_ns)
            self.now_ns += RTT_NS // 10

    def bad(self) -> int:
        states = (state for engine in self.engines for state in engine.states().values())
        return sum(state is EvState.ASSUMED_BAD for state in states)


@given(
    qps=st.integers(1, 40),
    evs=st.integers(2, 40),
    window_packets=st.integers(1, 64),
    rtts=st.integers(1, 30),
    payload_per_rtt=st.integers(0, 2_000_000),
)
def test_probes_that_nobody_answers_are_bounded(
    qps: int, evs: int, window_packets: int, rtts: int, payload_per_rtt: int
) -> None:
    """For a queue pair by its window, for a NIC by what it sends and four in each RTT."""
    nic = Nic(qps, evs, window_packets * MTU, payload_per_rtt)
    nic.live(10)
    nic.condemn()
    nic.live(rtts)
    own = [sum(number == qp for _, number, _ in nic.probes) for qp in range(qps)]
    assert max(own) <= window_packets * (rtts + 1) + 1
    per_rtt = 4 + payload_per_rtt / 64 / PROBE_BYTES
    assert len(nic.probes) <= per_rtt * (rtts + 8) + qps  # each may have its turn ahead
    assert nic.probes
    if len(nic.probes) > 16 * qps:  # nobody is forgotten
        assert min(own) > 0
    for number in range(qps):  # and all EVs of a queue pair take turns
        probed = Counter(ev for _, other, ev in nic.probes if other == number)
        assert max(probed.values(), default=0) <= 1 + min(probed.values(), default=0)
        assert len(probed) == evs - 1 or max(probed.values(), default=0) <= 1


def test_few_dead_evs_are_probed_as_often_as_if_there_were_no_bounds() -> None:
    nic, free = (Nic(1, 8, 64 * MTU, 200_000) for _ in range(2))
    for each in (nic, free):
        each.live(10)
        each.condemn()
    nic.live(20)
    engine = free.engines[0]
    for _ in range(200):
        free.probes += [(free.now_ns, 0, ev) for ev, _ in engine.due_probes(free.now_ns)]
        free.now_ns += RTT_NS // 10
    assert nic.probes == free.probes
    assert len(nic.probes) > 7 * 10


def test_who_is_idle_and_gets_no_answer_probes_ever_more_seldom() -> None:
    """At most an eighth of the window in an RTT while data is in flight, later 1/64."""
    nic = Nic(1, 129, 64 * MTU, 2_000_000)
    nic.live(10)
    nic.condemn()
    nic.live(20)
    for idle, per_rtt in ((False, 8), (True, 1), (False, 8)):
        nic.rooms[0].idle = idle
        nic.live(5)
        before = len(nic.probes)
        nic.live(20)
        assert (len(nic.probes) - before) / 20 == pytest.approx(per_rtt, rel=0.2)
    nic.alive = True
    nic.live(60)
    assert nic.bad() == 0


def test_evs_that_answer_go_first_and_all_come_back() -> None:
    nic = Nic(20, 33, 64 * MTU, 200_000)
    nic.live(10)
    nic.condemn()
    nic.live(30)
    nic.alive = True
    nic.live(12)
    back = [sum(s is EvState.GOOD for s in e.states().values()) for e in nic.engines]
    assert min(back) >= 3, "each queue pair has some soon"
    assert nic.bad() > 200
    nic.live(150)
    assert nic.bad() == 0


def test_no_ev_is_probed_where_the_last_hop_trims_the_only_packet() -> None:
    nic = Nic(1, 8, MTU, 20_000)
    nic.live(10)
    nic.condemn()
    nic.rooms[0].report_incast(nic.now_ns)
    nic.live(60)
    assert nic.probes == []
    nic.live(10)
    assert 3 <= len(nic.probes) <= 7
    wide = Nic(1, 8, 64 * MTU, 200_000)
    wide.condemn()
    wide.rooms[0].report_incast(wide.now_ns)
    wide.live(1)
    assert len(wide.probes) == 7, "who has a window of many packets needs many EVs"


def ladder(linear: int = 7) -> RetryTimer:
    retry = RetryTimer(
        RttEstimator(RTT_NS), probes=2, linear_retries=linear, exponential_retries=25
    )
    retry.sent(0, was_idle=True)
    return retry


def waits_of_probes(retry: RetryTimer, number: int, now_ns: int) -> list[float]:
    """The RTTs before each of the next probes, if a timeout takes far longer."""
    waits: list[float] = []
    while len(waits) < number:
        due_ns = retry.deadline_ns(RTT_NS // 8)
        assert retry.expire(due_ns) is RetryAction.PROBE
        waits.append((due_ns - now_ns) / RTT_NS)
        now_ns = due_ns
    return waits


def test_the_time_between_probes_doubles_up_to_four_times() -> None:
    """After the first rungs; here the timeouts take longer than the probes between them."""
    retry = ladder(linear=0)
    assert waits_of_probes(retry, 2, 0) == [1.25, 1.25]
    retry = ladder(linear=0)
    for _ in range(8):
        retry.expire(retry._climb_ns())
    assert retry.timeouts == 6
    now_ns = retry._climb_ns() - retry._timeout_ns()
    assert waits_of_probes(retry, 3, now_ns) == [5, 5, 5]
    retry.answered(now_ns := now_ns + 15 * RTT_NS)
    assert waits_of_probes(retry, 5, now_ns) == [1.25, 1.25, 2.5, 5, 5]


def test_in_an_incast_nothing_is_probed_before_it_could_be_late() -> None:
    retry = ladder()
    retry.report_incast(0)
    assert waits_of_probes(retry, 1, 0) == [INCAST_RTTS]
    later_ns = (INCAST_RTTS + 1) * RTT_NS
    retry.restart(later_ns)
    retry.sent(later_ns, was_idle=False)
    assert waits_of_probes(retry, 1, later_ns) == [1.25]


def test_what_goes_into_a_full_last_hop_has_time_although_nothing_was_trimmed_of_late() -> None:
    retry = ladder()
    now_ns = 3 * INCAST_RTTS * RTT_NS
    retry.restart(now_ns)
    retry.sent(now_ns, was_idle=False, crowded=True)
    assert waits_of_probes(retry, 1, now_ns) == [INCAST_RTTS]


def test_tails_have_room_when_evs_have_used_theirs() -> None:
    budget = ProbeBudget()
    now_ns = 10**12
    budget.take(10_000, now_ns, RTT_NS)
    assert budget.room(now_ns, RTT_NS) == 0
    granted = sum(budget.take_for_tail(now_ns, RTT_NS) for _ in range(1000))
    assert 1 <= granted <= 16
    assert not budget.take_for_tail(now_ns, RTT_NS)
    assert budget.take_for_tail(now_ns + RTT_NS, RTT_NS)


def test_who_waits_for_room_is_served_in_turn() -> None:
    budget = ProbeBudget()
    now_ns = 10**12
    budget.take(budget.room(now_ns, RTT_NS), now_ns, RTT_NS)
    turns = [budget.take(1, now_ns, RTT_NS) for _ in range(8)]
    assert turns == sorted(set(turns))
    assert now_ns < turns[0] <= now_ns + RTT_NS // 4
    assert turns[-1] == turns[0] + 7 * RTT_NS // 4


def trimmed_to_a_packet() -> Window:
    """A window of one packet."""
    profile = CcProfile.derive(base_rtt_ns=130 * MS, rate_bps=40e6, dilation=10_000)
    window = Window(lambda: Nscc(profile))
    lost = profile.max_cwnd
    window.on_nack(LossReport(lost, "TRIMMED_LASTHOP", True, None, 1, -100 * S))
    return window


def test_what_is_trimmed_one_at_a_time_is_sent_ever_later_and_arrives() -> None:
    """No probe is sent meanwhile: nothing is in flight, so nobody is silent."""
    network = Network(
        make_profile(),
        default=lambda: PathModel(trim=0.8, trim_last_hop=True),
        congestion=trimmed_to_a_packet,
    )
    write_all(network, 2, until_ns=4000 * S)
    check_success(network, 2)
    qp = network.qps[0]
    assert qp.counters.trimmed_nacks > 30
    assert qp.counters.tail_probes == qp.counters.lost == qp.counters.timeouts == 0
    times = [sent.time_ns for sent in network.data_sent()]
    rtts = [(b - a) / (130 * MS) for a, b in pairwise(times)]
    assert max(rtts) <= 24 + 1
    assert sum(wait > 6 for wait in rtts) > 5
