"""The scoreboard against a set of what was sent and a set of what was acknowledged."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.mrc.entropy import Ev
from testbed.mrc.message import Message
from testbed.mrc.recovery.scoreboard import Scoreboard
from testbed.mrc.transmission import Transmission

MESSAGE = Message(0, 0, memoryview(b""), 0, 0)
EV = Ev(0, 0, 0)


def send(scoreboard: Scoreboard, previous: Transmission | None = None) -> Transmission:
    if previous is None:
        seq = scoreboard.next_seq
        scoreboard.next_seq += 1
    else:
        seq = previous.seq
    transmission = Transmission(seq, MESSAGE, 0, 0, EV, 0, 0, previous)
    scoreboard.unacked[seq] = transmission
    return transmission


@given(
    first=st.sampled_from([0, (1 << 24) - 3]),
    sent=st.integers(1, 90),
    reports=st.lists(
        st.tuples(st.integers(-1, 89), st.integers(-80, 80), st.integers(0, (1 << 64) - 1)),
        max_size=12,
    ),
)
def test_each_packet_is_news_once(
    first: int, sent: int, reports: list[tuple[int, int, int]]
) -> None:
    """Whatever SACKs say, in whatever order they come: of what was never sent they say nothing."""
    scoreboard = Scoreboard(first)
    all_sent = {send(scoreboard).seq for _ in range(sent)}
    arrived: set[int] = set()
    for cack, offset, bitmap in reports:
        upto = first + min(cack, sent - 1)
        said = set(range(first, upto + 1))
        said |= {upto + offset + bit for bit in range(64) if bitmap >> bit & 1}
        news = [sent.seq for sent in scoreboard.acknowledged(upto, upto + offset, bitmap)]
        assert len(news) == len(set(news))
        assert set(news) == said & all_sent - arrived
        arrived |= said & all_sent
        assert set(scoreboard.unacked) == all_sent - arrived
        assert all(seq in arrived for seq in range(first, scoreboard.oldest_seq))


def test_the_oldest_is_repeated_first_and_once() -> None:
    scoreboard = Scoreboard(0)
    transmissions = [send(scoreboard) for _ in range(5)]
    assert scoreboard.to_repeat() is None
    for transmission in (transmissions[3], transmissions[1], transmissions[4]):
        transmission.done = True
        scoreboard.repeat(transmission)
    assert scoreboard.to_repeat() is transmissions[1]
    again = send(scoreboard, transmissions[1])
    assert scoreboard.to_repeat() is transmissions[3]
    again.done = True
    scoreboard.repeat(again)
    assert scoreboard.to_repeat() is again


def test_what_was_acknowledged_meanwhile_is_not_repeated() -> None:
    scoreboard = Scoreboard(0)
    for transmission in [send(scoreboard) for _ in range(3)]:
        transmission.done = True
        scoreboard.repeat(transmission)
    scoreboard.acknowledged(-1, 0, 0b001)
    again = scoreboard.to_repeat()
    assert again is not None
    assert again.seq == 1
    scoreboard.acknowledged(2, 3, 0)
    assert scoreboard.to_repeat() is None


def test_nothing_is_left_of_what_is_forgotten() -> None:
    scoreboard = Scoreboard(0)
    transmission = send(scoreboard)
    transmission.done = True
    scoreboard.repeat(transmission)
    scoreboard.clear()
    assert scoreboard.to_repeat() is None
    assert scoreboard.unacked == {}
