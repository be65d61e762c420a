"""The in-order point, gaps, reordering and message latency, on cases small enough to see."""

from math import inf

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.results.analysis.delivery import (
    ByFlow,
    FlowDelivery,
    advances,
    delivered_point,
    in_order,
    longest_gap,
    message_times,
    overdue_s,
    placed_bytes,
    reordering,
    union,
    with_starts,
)


def arrivals(*rows: tuple[float, int, int, bool, int], flow: int = 0) -> pl.DataFrame:
    """Rows of (t, seq, bytes, retransmitted, ev) of a flow."""
    schema = {
        "t": pl.Float64,
        "seq": pl.Int64,
        "bytes": pl.Int32,
        "retransmitted": pl.Boolean,
        "ev": pl.UInt32,
    }
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.with_columns(flow=pl.lit(flow, dtype=pl.Int32))


def advances_of(frame: pl.DataFrame) -> list[float]:
    """When the delivered point of the only flow moved."""
    return advances(delivered_point(frame))["t"].to_list()


def test_the_delivered_point_waits_for_the_gap() -> None:
    frame = arrivals(
        (1.0, 5, 10, False, 0),
        (2.0, 7, 10, False, 0),
        (3.0, 8, 10, False, 0),
        (6.0, 6, 10, True, 1),
        (7.0, 9, 10, False, 0),
    )
    point = delivered_point(frame)
    assert point["seq"].to_list() == [5, 6, 7, 8, 9]
    assert point["delivered"].to_list() == [1, 6, 6, 6, 7]
    assert advances_of(frame) == [1, 6, 7]


def test_the_delivered_point_ends_at_what_never_arrived() -> None:
    frame = arrivals((1.0, 0, 10, False, 0), (2.0, 1, 10, False, 0), (3.0, 3, 10, False, 0))
    assert delivered_point(frame)["seq"].to_list() == [0, 1]
    assert in_order(frame, delivered_point(frame))["delivered"].to_list() == [1.0, 2.0, inf]


def test_duplicates_add_nothing() -> None:
    frame = arrivals((1.0, 0, 100, False, 0), (2.0, 0, 0, True, 0), (3.0, 1, 50, False, 0))
    times, placed = ByFlow(placed_bytes(frame)).columns(0)
    got = FlowDelivery(times, placed, np.empty(0))
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
    assert advances_of(frame) == expected


def test_flows_are_looked_at_by_themselves() -> None:
    """Rows of two flows in turn, as their hosts record them, come to what each comes to alone."""
    one = arrivals((1.0, 5, 10, False, 0), (4.0, 7, 10, False, 0), (6.0, 6, 10, True, 1), flow=3)
    other = arrivals((2.0, 9, 20, False, 0), (3.0, 8, 5, False, 0), (5.0, 9, 0, True, 0), flow=8)
    both = pl.concat([one, other]).sort("t")
    for function in (delivered_point, placed_bytes, reordering):
        found = ByFlow(function(both))
        for flow, alone in ((3, one), (8, other)):
            assert found.rows(flow).equals(function(alone))
    assert ByFlow(both).rows(4).is_empty()
    sent = both.filter(~pl.col("retransmitted"))
    done = pl.DataFrame({"t": [6.5, 3.5], "flow": [3, 8], "message": [0, 0], "bytes": [20, 5]})
    done = done.cast({"flow": pl.Int32})
    starts = with_starts(done, sent).select("flow", "t", "start_t").rows()
    assert starts == [(8, 3.5, 3.0), (3, 6.5, 1.0)]


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
    assert reordering(spread).rows() == [(0, 0, 1)]
    overtaken = arrivals((1, 1, 1, False, 0), (2, 0, 1, False, 0), (3, 2, 1, True, 0))
    assert reordering(overtaken)["reordered"].to_list() == [1]


@given(st.lists(st.tuples(st.integers(-3, 9), st.booleans(), st.integers(0, 3))))
def test_reordering_counts_packets_behind_the_newest_of_their_ev(
    packets: list[tuple[int, bool, int]],
) -> None:
    newest: dict[int, int] = {}
    reordered = depth = 0
    for seq, retransmitted, ev in packets:
        if retransmitted:
            continue
        reordered += seq < newest.get(ev, seq)
        newest[ev] = max(seq, newest.get(ev, seq))
        depth = max(depth, max(newest.values()) - seq)
    frame = arrivals(*((float(i), seq, 1, again, ev) for i, (seq, again, ev) in enumerate(packets)))
    assert reordering(frame).rows() == ([(0, reordered, depth)] if newest else [])


def test_a_message_takes_from_its_first_packet_to_its_completion() -> None:
    sent = pl.DataFrame(
        {"t": [0.0, 1.0, 2.0, 3.0, 9.0], "seq": [4, 5, 6, 7, 5], "bytes": [10, 2, 10, 2, 2]}
    ).with_columns(flow=0)
    done = pl.DataFrame({"t": [10.0, 10.5], "flow": 0, "message": [0, 1], "bytes": [12, 12]})
    assert with_starts(done, sent)["start_t"].to_list() == [0.0, 2.0]
    assert with_starts(done, sent.head(2))["start_t"].to_list() == [0.0, None]  # of a killed sender
    assert with_starts(done.head(0), sent).is_empty()


def test_time_in_which_messages_are_overdue_counts_once() -> None:
    begun, done = np.array([0.0, 1.0, 2.0, 8.0]), np.array([1.0, 6.0, 7.0, 9.0])
    # Of 2 s allowed the second is overdue from 3 to 6, the third from 4 to 7.
    assert overdue_s(begun, done, 2.0, 0.0, 10.0) == pytest.approx(4.0)
    assert overdue_s(begun, done, 2.0, 5.0, 10.0) == pytest.approx(2.0)
    assert overdue_s(begun, done, 6.0, 0.0, 10.0) == 0.0


def test_a_message_that_never_completes_is_overdue_to_the_end() -> None:
    assert overdue_s(np.array([0.0, 3.0]), np.array([1.0]), 2.0, 0.0, 10.0) == pytest.approx(5.0)


def test_a_message_that_was_begun_and_not_completed_has_a_beginning_only() -> None:
    sent = pl.DataFrame({"flow": 0, "seq": [0, 1, 2], "t": [0.5, 0.6, 0.7], "bytes": [10, 10, 10]})
    recorded = pl.DataFrame({"flow": 0, "message": [0], "t": [0.9], "bytes": [20]})
    begun, done = message_times(recorded, sent)
    assert begun.tolist() == [0.5, 0.7]
    assert done.tolist() == [0.9]


def test_a_message_that_is_in_place_before_an_earlier_one_keeps_its_beginning() -> None:
    """The ports of a host tell when packets were due; what comes late may have been earlier."""
    sent = pl.DataFrame({"flow": 0, "seq": [0, 1], "t": [0.5, 0.6], "bytes": [10, 10]})
    recorded = pl.DataFrame({"flow": 0, "message": [0, 1], "t": [1.0, 0.9], "bytes": [10, 10]})
    begun, done = message_times(recorded, sent)
    assert begun.tolist() == [0.6, 0.5]
    assert done.tolist() == [0.9, 1.0]


def test_the_union_of_spans_covers_each_time_once() -> None:
    assert union([(4.0, 5.0), (0.0, 2.0), (1.0, 3.0), (3.0, 3.5), (6.0, 6.0)]) == [
        (0.0, 3.5),
        (4.0, 5.0),
    ]
    assert union([]) == []
