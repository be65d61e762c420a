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
