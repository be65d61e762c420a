"""Loss detection on its own: by time, by order, by EV, and what makes it more patient."""

from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import NEVER
from testbed.mrc.entropy import Ev
from testbed.mrc.message import Message
from testbed.mrc.recovery.loss import LossDetector, LossReason, WindowedMaximum
from testbed.mrc.transmission import Transmission

from .harness import MS

RTT_NS = 160 * MS
MESSAGE = Message(0, 0, memoryview(bytes(1000)), 0, 0)


class Bench:
    """A detector and the transmissions given to it, by their order."""

    def __init__(self) -> None:
        self.rtt = RttEstimator(RTT_NS)
        self.detector = LossDetector(self.rtt)
        self.evs = [Ev(ev, 0, ev) for ev in range(4)]
        self.sent: list[Transmission] = []

    def send(self, at_ns: int, ev: int, previous: Transmission | None = None) -> Transmission:
        order = len(self.sent)
        transmission = Transmission(order, MESSAGE, 0, 100, self.evs[ev], order, at_ns, previous)
        self.sent.append(transmission)
        self.detector.sent(transmission)
        return transmission

    def deliver(self, at_ns: int, *transmissions: Transmission) -> None:
        for transmission in transmissions:
            transmission.done = True
        self.detector.delivered(transmissions, transmissions[-1], at_ns)

    def lost(self, at_ns: int) -> list[tuple[int, LossReason]]:
        return [(lost.order, reason) for lost, reason in self.detector.lost(at_ns)]


def test_nothing_is_lost_before_something_later_is_delivered() -> None:
    bench = Bench()
    bench.send(0, 0)
    bench.send(1 * MS, 1)
    assert bench.lost(10 * RTT_NS) == []
    assert bench.detector.deadline_ns == NEVER


def test_lost_by_time_a_quarter_rtt_after_the_rtt() -> None:
    bench = Bench()
    bench.send(0, 0)
    bench.deliver(1 * MS + RTT_NS, bench.send(1 * MS, 1))
    due_ns = RTT_NS * 5 // 4
    assert bench.detector.deadline_ns == due_ns
    assert bench.lost(due_ns - 1) == []
    assert bench.lost(due_ns) == [(0, LossReason.LATE)]
    assert bench.detector.deadline_ns == NEVER


def test_overtaken_on_the_same_ev_is_lost_sooner() -> None:
    bench = Bench()
    bench.send(0, 0)
    bench.deliver(1 * MS + RTT_NS, bench.send(1 * MS, 0))
    due_ns = 1 * MS + RTT_NS + RTT_NS // 8
    assert bench.detector.deadline_ns == due_ns
    assert bench.lost(due_ns - 1) == []
    assert bench.lost(due_ns) == [(0, LossReason.OVERTAKEN)]


def test_a_retransmission_overtakes_by_class_which_proves_nothing() -> None:
    bench = Bench()
    repeated = bench.send(0, 1)
    bench.send(0, 0)
    bench.deliver(1 * MS + RTT_NS, bench.send(1 * MS, 0, previous=repeated))
    assert bench.lost(RTT_NS * 5 // 4 - 1) == []


def test_an_overtaken_packet_that_arrives_in_the_grace_is_not_lost() -> None:
    bench = Bench()
    late = bench.send(0, 0)
    bench.deliver(1 * MS + RTT_NS, bench.send(1 * MS, 0))
    bench.deliver(5 * MS + RTT_NS, late)
    assert bench.lost(10 * RTT_NS) == []


def test_a_spurious_overtaking_makes_the_grace_longer() -> None:
    bench = Bench()
    late = bench.send(0, 0)
    bench.deliver(1 * MS + RTT_NS, bench.send(1 * MS, 0))
    now_ns = 1 * MS + RTT_NS + RTT_NS // 8
    assert bench.lost(now_ns) == [(0, LossReason.OVERTAKEN)]
    bench.detector.report_late(late, now_ns + 1)
    bench.send(now_ns, 0)
    acked_ns = now_ns + 1 * MS + RTT_NS
    bench.deliver(acked_ns, bench.send(now_ns + 1 * MS, 0))
    assert bench.lost(acked_ns + RTT_NS // 8) == []
    assert [order for order, _ in bench.lost(acked_ns + RTT_NS // 4)] == [2]


def test_the_reorder_window_follows_late_paths_up_to_a_bound() -> None:
    bench = Bench()
    assert bench.detector.reorder_window_ns == RTT_NS // 4
    bench.deliver(RTT_NS + RTT_NS // 2, bench.send(0, 0))
    assert RTT_NS * 3 // 4 <= bench.detector.reorder_window_ns <= RTT_NS * 5 // 6
    bench.deliver(10 * RTT_NS, bench.send(0, 0))
    assert bench.detector.reorder_window_ns == RTT_NS * 7 // 4


def test_packets_whose_sack_was_lost_are_not_late() -> None:
    """They ended a message; the next one's first packet tells that they had arrived."""
    bench = Bench()
    tail = [bench.send(i * MS, i) for i in range(3)]
    bench.deliver(3 * RTT_NS, *tail, bench.send(2 * RTT_NS, 3))
    assert bench.detector.reorder_window_ns == RTT_NS // 4


def test_a_packet_that_others_had_overtaken_is_late_whichever_sack_reports_it() -> None:
    bench = Bench()
    late = bench.send(0, 0)
    bench.deliver(1 * MS + RTT_NS, bench.send(1 * MS, 1))
    bench.deliver(RTT_NS * 3 // 2, late, bench.send(RTT_NS // 2, 2))
    assert bench.detector.reorder_window_ns >= RTT_NS * 3 // 4


def test_in_an_incast_nothing_is_lost_by_time_for_a_while() -> None:
    bench = Bench()
    bench.send(0, 0)
    bench.detector.report_incast(1 * MS)
    bench.deliver(2 * MS + RTT_NS, bench.send(2 * MS, 1))
    assert bench.lost(11 * RTT_NS) == []
    assert bench.detector.deadline_ns == 12 * RTT_NS
    assert bench.lost(12 * RTT_NS) == [(0, LossReason.LATE)]


def test_the_reorder_window_forgets() -> None:
    bench = Bench()
    bench.deliver(2 * RTT_NS, bench.send(0, 0))
    for number in range(2, 20):
        bench.deliver((number + 1) * RTT_NS, bench.send(number * RTT_NS, 0))
    assert bench.detector.reorder_window_ns == RTT_NS // 4


def test_a_silent_ev_takes_its_other_packets_along_sooner() -> None:
    bench = Bench()
    bench.send(0, 0)
    second_ns = 20 * MS
    bench.send(second_ns, 0)
    bench.deliver(30 * MS + RTT_NS, bench.send(30 * MS, 1))
    assert bench.lost(RTT_NS * 5 // 4) == [(0, LossReason.LATE)]
    bench.detector.report_silent_ev(0)
    due_ns = second_ns + RTT_NS * 9 // 8
    now_ns = max(due_ns, RTT_NS * 5 // 4)
    assert bench.lost(now_ns) == [(1, LossReason.SILENT)]
    assert now_ns < second_ns + RTT_NS * 5 // 4


def test_a_silent_ev_proves_nothing_while_everything_is_silent() -> None:
    bench = Bench()
    bench.send(0, 0)
    bench.deliver(1 * MS + RTT_NS, bench.send(1 * MS, 1))
    bench.send(2 * MS, 0)
    assert bench.lost(RTT_NS * 5 // 4) == [(0, LossReason.LATE)]
    bench.detector.report_silent_ev(0)
    assert bench.lost(5 * RTT_NS) == []


def test_a_probe_that_comes_back_is_evidence() -> None:
    bench = Bench()
    bench.send(0, 0)
    bench.detector.probe_answered(order=1, sent_ns=200 * MS, now_ns=200 * MS + RTT_NS)
    assert bench.lost(200 * MS + RTT_NS) == [(0, LossReason.LATE)]


def test_an_ack_too_early_for_the_retransmission_moves_nothing() -> None:
    bench = Bench()
    first = bench.send(0, 0)
    bench.send(0, 2)
    first.done = True
    repeated = bench.send(RTT_NS, 1, previous=first)
    bench.deliver(RTT_NS + 1 * MS, repeated)
    assert bench.lost(10 * RTT_NS) == []


def test_windowed_maximum() -> None:
    maximum = WindowedMaximum()
    maximum.update(5, 1, 10)
    maximum.update(3, 2, 10)
    assert maximum.value == 5
    maximum.update(2, 12, 10)
    assert maximum.value == 5
    maximum.update(1, 23, 10)
    assert maximum.value == 2
