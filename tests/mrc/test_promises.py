"""What the verbs promise, whatever happens: retries counted, numbers wrapped, flushes complete."""

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.mrc import CompletionStatus, QpState, ReceiveCompletion
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.recovery.retry import RetryAction, RetryTimer

from .harness import MS, RKEY, VA, Network, PathModel, S, make_profile

MTU = 256
slow = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(
    probes=st.integers(1, 4),
    linear=st.integers(0, 7),
    exponential=st.integers(0, 8),
    rtt_ns=st.integers(1, 10**9),
)
def test_timeouts_are_as_many_as_allowed_and_as_long_as_told(
    probes: int, linear: int, exponential: int, rtt_ns: int
) -> None:
    """The first `linear` are of one length, the others grow by a factor of two."""
    rtt = RttEstimator(rtt_ns)
    retry = RetryTimer(rtt, probes=probes, linear_retries=linear, exponential_retries=exponential)
    retry.sent(0, was_idle=True)
    now_ns = climbed_ns = seen_probes = 0
    waits: list[int] = []
    while True:
        now_ns = retry.deadline_ns(0)
        remedy = retry.expire(now_ns)
        if remedy is RetryAction.PROBE:
            seen_probes += 1
            if seen_probes == probes:
                climbed_ns = now_ns
            continue
        waits.append(now_ns - climbed_ns)
        climbed_ns = now_ns
        if remedy is RetryAction.GIVE_UP:
            break
    assert len(waits) == linear + exponential + 1
    assert seen_probes >= probes
    for attempt, wait_ns in enumerate(waits, 1):
        steps = 1 << max(0, attempt - linear)
        assert wait_ns == steps * rtt.timeout_ns


@slow
@given(
    linear=st.integers(0, 3),
    exponential=st.integers(0, 3),
    messages=st.integers(1, 5),
    until_ms=st.integers(0, 400),
)
def test_a_dead_network_costs_all_retries_and_fails_in_order(
    linear: int, exponential: int, messages: int, until_ms: int
) -> None:
    """Whenever paths die: what completed has, the next one tells why, the rest is flushed."""
    network = Network(
        make_profile(planes=2),
        mtu=MTU,
        linear_retries=linear,
        exponential_retries=exponential,
        default=lambda: PathModel(dead=[(until_ms * MS, 10**6 * S)]),
    )
    for wr_id in range(messages):
        network.qps[0].post_write(wr_id, memoryview(bytes(3000)), VA, RKEY)
    network.run(10**6 * S, lambda: len(network.completions[0]) == messages)
    completions = network.completions[0]
    assert [completion.wr_id for completion in completions] == list(range(messages))
    done = sum(completion.status is CompletionStatus.SUCCESS for completion in completions)
    failed = [CompletionStatus.RETRY_EXCEEDED] + [CompletionStatus.FLUSHED] * messages
    expected = [CompletionStatus.SUCCESS] * done + failed
    assert [completion.status for completion in completions] == expected[:messages]
    if done < messages:
        assert network.qps[0].counters.timeouts == linear + exponential
        assert network.qps[0].state is QpState.ERROR


@slow
@given(
    before_psn=st.integers(0, 60),
    before_msn=st.integers(0, 12),
    loss=st.sampled_from([0.0, 0.1]),
    messages=st.lists(
        st.tuples(st.integers(0, 1500), st.one_of(st.none(), st.integers(0, (1 << 32) - 1))),
        min_size=15,
        max_size=25,
    ),
    seed=st.integers(0, 1 << 16),
)
def test_numbers_wrap_under_loss_and_immediates_stay_in_order(
    before_psn: int,
    before_msn: int,
    loss: float,
    messages: list[tuple[int, int | None]],
    seed: int,
) -> None:
    """PSNs and MSNs pass their ends; no byte, no completion and no immediate is lost or doubled."""
    network = Network(
        make_profile(planes=2),
        seed=seed,
        default=lambda: PathModel(loss=loss, jitter_ns=20 * MS, duplicate=loss),
        mtu=MTU,
        first_psn=(1 << 24) - 1 - before_psn,
        exponential_retries=12,
    )
    first = (1 << 16) - 1 - before_msn
    network.qps[0]._requester.queue._posted = first
    network.qps[1]._responder.delivery.delivered = first
    rng = Random(seed)
    expected = bytearray()
    for wr_id, (size, immediate) in enumerate(messages):
        payload = rng.randbytes(size)
        va = VA + len(expected)
        network.qps[0].post_write(wr_id, memoryview(payload), va, RKEY, immediate)
        expected += payload
    network.run(1000 * S, lambda: len(network.completions[0]) == len(messages))
    numbers = range(first, first + len(messages))
    assert [completion.message for completion in network.completions[0]] == list(numbers)
    assert {completion.status for completion in network.completions[0]} == {
        CompletionStatus.SUCCESS
    }
    assert network.buffers[1][: len(expected)] == expected
    assert network.qps[1].poll_recv_cq() == [
        ReceiveCompletion(number, immediate, size)
        for number, (size, immediate) in zip(numbers, messages, strict=True)
        if immediate is not None
    ]


@slow
@given(
    at_ms=st.integers(0, 600),
    sizes=st.lists(st.integers(0, 4000), min_size=1, max_size=12),
    loss=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 1 << 16),
)
def test_an_error_flushes_all_that_was_posted_once_and_in_order(
    at_ms: int, sizes: list[int], loss: float, seed: int
) -> None:
    """At whatever time: what is told to have succeeded is in the peer's memory, and all is told."""
    network = Network(
        make_profile(planes=2), seed=seed, default=lambda: PathModel(loss=loss), mtu=MTU
    )
    qp = network.qps[0]
    rng = Random(seed)
    payloads = [rng.randbytes(size) for size in sizes]
    places = [sum(sizes[:number]) for number in range(len(sizes))]
    for wr_id, payload in enumerate(payloads):
        qp.post_write(wr_id, memoryview(payload), VA + places[wr_id], RKEY)
    network.run(at_ms * MS)
    qp.modify(QpState.ERROR)
    qp.post_write(len(sizes), memoryview(b"too late"), VA, RKEY)
    completions = network.completions[0] + qp.poll_cq()
    assert [completion.wr_id for completion in completions] == list(range(len(sizes) + 1))
    statuses = [completion.status for completion in completions]
    done = statuses.count(CompletionStatus.SUCCESS)
    assert statuses[done:] == [CompletionStatus.FLUSHED] * (len(sizes) + 1 - done)
    for place, payload in zip(places[:done], payloads[:done], strict=True):
        assert network.buffers[1][place : place + len(payload)] == payload
    assert qp.flight == 0
    assert qp.next_deadline() is None
    assert qp.transmit(network.now_ns, 64) == []
