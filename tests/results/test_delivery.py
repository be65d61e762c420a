"""The in-order point, gaps, reordering and message latency, on cases small enough to see."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.results.analysis.delivery import (
    Reordering,
    delivered_point,
    delivery,
    longest_gap,
    message_latencies,
    message_times,
    overdue_s,
    reordering,
    union,
)


def arrivals(*rows: tuple[float, int, int, bool, int]) -> pl.DataFrame:
    """Rows of (t, seq, bytes, retransmitted, ev)."""
    schema = {
        "t": pl.Float64,
        "seq": pl.Int64,
        "bytes": pl.Int32,
        "retransmitted": pl.Boolean,
        "ev": pl.UInt32,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_the_delivered_point_waits_for_the_gap() -> None:
    frame = arrivals(
        (1.0, 5, 10, False, 0),
        (2.0, 7, 10, False, 0),
        (3.0, 8, 10, False, 0),
        (6.0, 6, 10, True, 1),
        (7.0, 9, 10, False, 0),
    )
    seqs, times = delivered_point(frame)
    assert seqs.tolist() == [5, 6, 7, 8, 9]
    assert times.tolist() == [1, 6, 6, 6, 7]
    assert delivery(frame, delivered_point(frame)).advances.tolist() == [1, 6, 7]


def test_the_delivered_point_ends_at_what_never_arrived() -> None:
    frame = arrivals((1.0, 0, 10, False, 0), (2.0, 1, 10, False, 0), (3.0, 3, 10, False, 0))
    assert delivered_point(frame)[0].tolist() == [0, 1]


def test_duplicates_add_nothing() -> None:
    frame = arrivals((1.0, 0, 100, False, 0), (2.0, 0, 0, True, 0), (3.0, 1, 50, False, 0))
    got = delivery(frame, delivered_point(frame))
    assert got.bytes_until(np.array([0.5, 1.0, 2.5, 3.0])).tolist() == [0, 100, 100, 150]
    assert got.goodput_bps(1.0, 3.0) == pytest.approx(50 * 8 / 2)


@given(st.permutations(range(12)))
def test_the_delivered_point_agrees_with_a_receiver(order: list[int]) -> None:
    frame = arrivals(*((float(i), seq, 1, False, 0) for i, seq in enumerate(order)))
    expected, seen, following = [], set(), 0
    for i, seq in enumerate(order):
        seen.add(seq)
        before = following
        while following in seen:
            following += 1
        if following > before:
            expected.append(float(i))
    assert delivery(frame, delivered_point(frame)).advances.tolist() == expected


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ([0.5, 1.5, 2.5, 3.5, 9.0], 1.0),  # steady: the gap that begins at 3.5 lies outside
        ([0.9, 3.0, 3.1], 2.0),  # counted from the start of the window, not from before
        ([1.1, 2.9, 5.0], 2.1),  # a gap that begins inside counts to its end
        ([0.5], 9.0),  # nothing any more: to the end of the run
        ([], 9.0),
    ],
)
def test_longest_gap(moments: list[float], expected: float) -> None:
    assert longest_gap(np.array(moments), 1.0, 3.0, 10.0) == pytest.approx(expected)


def test_only_overtaking_on_the_same_path_is_reordering() -> None:
    spread = arrivals((1, 1, 1, False, 0), (2, 0, 1, False, 1), (3, 2, 1, False, 1))
    assert reordering(spread).reordered == 0
    assert reordering(spread).depth_max == 1
    overtaken = arrivals((1, 1, 1, False, 0), (2, 0, 1, False, 0), (3, 2, 1, True, 0))
    assert reordering(overtaken).reordered == 1
    assert reordering(overtaken).packets == 2


@given(st.lists(st.tuples(st.integers(-3, 9), st.booleans(), st.integers(0, 3))))
def test_reordering_counts_packets_behind_the_newest_of_their_ev(
    packets: list[tuple[int, bool, int]],
) -> None:
    newest: dict[int, int] = {}
    reordered = depth = first = 0
    for seq, retransmitted, ev in packets:
        if retransmitted:
            continue
        first += 1
        reordered += seq < newest.get(ev, seq)
        newest[ev] = max(seq, newest.get(ev, seq))
        depth = max(depth, max(newest.values()) - seq)
    frame = arrivals(*((float(i), seq, 1, again, ev) for i, (seq, again, ev) in enumerate(packets)))
    assert reordering(frame) == Reordering(first, reordered, depth)


def test_a_message_takes_from_its_first_packet_to_its_completion() -> None:
    sent = pl.DataFrame(
        {"t": [0.0, 1.0, 2.0, 3.0, 9.0], "seq": [4, 5, 6, 7, 5], "bytes": [10, 2, 10, 2, 2]}
    )
    done = pl.DataFrame({"t": [10.0, 10.5], "message": [0, 1], "bytes": [12, 12]})
    assert message_latencies(done, sent).tolist() == [10.0, 8.5]
    assert message_latencies(done.head(0), sent).size == 0


def test_time_in_which_messages_are_overdue_counts_once() -> None:
    begun, done = np.array([0.0, 1.0, 2.0, 8.0]), np.array([1.0, 6.0, 7.0, 9.0])
    # Of 2 s allowed the second is overdue from 3 to 6, the third from 4 to 7.
    assert overdue_s(begun, done, 2.0, 0.0, 10.0) == pytest.approx(4.0)
    assert overdue_s(begun, done, 2.0, 5.0, 10.0) == pytest.approx(2.0)
    assert overdue_s(begun, done, 6.0, 0.0, 10.0) == 0.0


def test_a_message_that_never_completes_is_overdue_to_the_end() -> None:
    assert overdue_s(np.array([0.0, 3.0]), np.array([1.0]), 2.0, 0.0, 10.0) == pytest.approx(5.0)


def test_a_message_that_was_begun_and_not_completed_has_a_beginning_only() -> None:
    sent = pl.DataFrame({"seq": [0, 1, 2], "t": [0.5, 0.6, 0.7], "bytes": [10, 10, 10]})
    recorded = pl.DataFrame({"message": [0], "t": [0.9], "bytes": [20]})
    begun, done = message_times(recorded, sent)
    assert begun.tolist() == [0.5, 0.7]
    assert done.tolist() == [0.9]


def test_the_union_of_spans_covers_each_time_once() -> None:
    assert union([(4.0, 5.0), (0.0, 2.0), (1.0, 3.0), (3.0, 3.5), (6.0, 6.0)]) == [
        (0.0, 3.5),
        (4.0, 5.0),
    ]
    assert union([]) == []
