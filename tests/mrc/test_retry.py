import pytest

from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.recovery.retry import RetryAction, RetryTimer

from .harness import MS

RTT_NS = 100 * MS
WINDOW_NS = 25 * MS


def timer(
    probes: int = 2, linear: int = 3, exponential: int = 2, *, growing: bool = False
) -> RetryTimer:
    retry = RetryTimer(
        RttEstimator(RTT_NS),
        probes=probes,
        linear_retries=linear,
        exponential_retries=exponential,
        growing=growing,
    )
    retry.sent(0, was_idle=True)
    return retry


@pytest.mark.parametrize(
    ("growing", "rtts"), [(False, [2, 2, 2, 4, 8, 16]), (True, [2, 4, 6, 12, 24, 48])]
)
def test_the_ladder_probes_then_waits_then_doubles_then_gives_up(
    rtts: list[int], *, growing: bool
) -> None:
    retry = timer(growing=growing)
    steps: list[tuple[RetryAction, int]] = []
    probes = 0
    now_ns = climbed_ns = 0
    while not steps or steps[-1][0] is not RetryAction.GIVE_UP:
        deadline_ns = retry.deadline_ns(WINDOW_NS)
        assert 0 < deadline_ns - now_ns <= 11 * RTT_NS
        now_ns = deadline_ns
        remedy = retry.expire(now_ns)
        if remedy is RetryAction.PROBE:
            probes += 1
            climbed_ns = now_ns if probes <= 2 else climbed_ns
        else:
            steps.append((remedy, round((now_ns - climbed_ns) / RTT_NS)))
            climbed_ns = now_ns
    assert steps == [*zip([*5 * [RetryAction.TIMEOUT], RetryAction.GIVE_UP], rtts, strict=True)]
    assert probes >= 4


def test_a_refusal_takes_a_retry_those_of_one_rtt_together() -> None:
    retry = timer(linear=1, exponential=1)
    assert all(retry.refused(now_ns) for now_ns in range(0, RTT_NS, RTT_NS // 10))
    assert retry.refused(RTT_NS)
    assert not retry.refused(2 * RTT_NS)
    retry.restart(2 * RTT_NS)
    assert retry.refused(2 * RTT_NS)


def test_answers_without_progress_do_not_lengthen_the_ladder() -> None:
    """Nor is anything declared lost by the clock while the peer can say what has arrived."""
    silent, answered = timer(), timer()
    silent_ns = answered_ns = 0
    while silent.expire(silent_ns) is not RetryAction.GIVE_UP:
        silent_ns = silent.deadline_ns(WINDOW_NS)
    remedies = set()
    while (remedy := answered.expire(answered_ns)) is not RetryAction.GIVE_UP:
        remedies.add(remedy)
        answered.answered(answered_ns + RTT_NS // 2)
        answered.sent(answered_ns + RTT_NS // 2, was_idle=False)
        answered_ns = answered.deadline_ns(WINDOW_NS)
    assert remedies == {RetryAction.PROBE}
    assert silent_ns <= answered_ns <= silent_ns + 3 * RTT_NS


def test_an_answer_puts_the_next_probe_off() -> None:
    retry = timer(probes=3)
    now_ns = retry.deadline_ns(WINDOW_NS)
    assert retry.expire(now_ns) is RetryAction.PROBE
    due_ns = retry.deadline_ns(WINDOW_NS)
    retry.answered(now_ns + RTT_NS)
    retry.sent(now_ns + RTT_NS, was_idle=False)
    assert retry.deadline_ns(WINDOW_NS) == due_ns + RTT_NS


def test_the_last_number_of_retries_means_for_ever() -> None:
    retry = timer(exponential=25)
    now_ns = 0
    for _ in range(100):
        now_ns = retry._climb_ns()
        assert retry.expire(now_ns) is not RetryAction.GIVE_UP


def test_progress_starts_over() -> None:
    retry = timer()
    while retry.timeouts < 2:
        retry.expire(retry.deadline_ns(WINDOW_NS))
    retry.restart(10**12)
    assert retry.timeouts == 0
    retry.sent(10**12, was_idle=False)
    assert retry.deadline_ns(WINDOW_NS) < 10**12 + 1.5 * RTT_NS


def test_a_trickle_of_packets_does_not_put_the_probe_off() -> None:
    retry = timer()
    for number in range(1, 20):
        retry.sent(number * RTT_NS // 10, was_idle=False)
    assert retry.deadline_ns(WINDOW_NS) < 1.5 * RTT_NS


def test_the_tail_is_probed_soon_after_the_last_packet() -> None:
    retry = timer()
    retry.restart(RTT_NS)
    assert retry.deadline_ns(WINDOW_NS) < 1.5 * RTT_NS
