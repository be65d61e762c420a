from hypothesis import given
from hypothesis import strategies as st

from testbed.sim.engine import Engine


def test_in_order_of_time_then_of_scheduling() -> None:
    engine = Engine()
    seen: list[tuple[int, object]] = []

    def note(now_ns: int, what: object) -> None:
        seen.append((now_ns, what))

    for at_ns, what in ((5, "b"), (3, "a"), (5, "c"), (9, "late")):
        engine.at(at_ns, note, what)
    engine.run(8)
    assert seen == [(3, "a"), (5, "b"), (5, "c")]
    assert engine.now_ns == 8
    engine.run(9)
    assert seen[-1] == (9, "late")


def test_what_is_scheduled_meanwhile_is_done_in_the_same_run() -> None:
    engine = Engine()
    seen: list[int] = []

    def again(now_ns: int, left: int) -> None:
        seen.append(now_ns)
        if left:
            engine.at(now_ns + 2, again, left - 1)

    engine.at(0, again, 3)
    engine.run(4)
    assert seen == [0, 2, 4]
    engine.step()
    assert (seen, engine.now_ns) == ([0, 2, 4, 6], 6)


ahead = st.integers(0, 40)
chains = st.lists(st.lists(ahead, min_size=1, max_size=6), max_size=12)


@given(chains, st.integers(1, 50), st.lists(ahead, max_size=4))
def test_slices_of_any_length_change_no_order(
    waits: list[list[int]], slice_ns: int, pauses: list[int]
) -> None:
    """Each chain schedules its next event from the one before; some begin between two calls."""

    def order(engine: Engine) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []

        def next_of(now_ns: int, rest: tuple[int, list[int]]) -> None:
            number, times = rest
            seen.append((now_ns, number))
            if times:
                engine.at(now_ns + times[0], next_of, (number, times[1:]))

        half = len(waits) // 2
        for number, (first, *times) in enumerate(waits[:half]):
            engine.at(first, next_of, (number, times))
        for pause in pauses:
            engine.run(engine.now_ns + pause)
        for number, (first, *times) in enumerate(waits[half:], half):
            engine.at(engine.now_ns + first, next_of, (number, times))
        engine.run(1000)
        return seen

    in_one_slice = order(Engine(10**9))
    assert order(Engine(slice_ns)) == in_one_slice
    assert in_one_slice == sorted(in_one_slice, key=lambda event: event[0])
    assert len(in_one_slice) == sum(map(len, waits))
