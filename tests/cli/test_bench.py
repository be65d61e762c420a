"""The parts of the bench can be listed and chosen; what is none of them is refused."""

from testbed.bench.parts import PARTS
from testbed.model.errors import ExitStatus

from .conftest import Call


def test_every_part_is_listed_with_what_it_measures(call: Call) -> None:
    done = call("bench", "--list")
    assert done.status == ExitStatus.AS_EXPECTED
    listed = [line.split(maxsplit=1) for line in done.out.splitlines()]
    assert listed == [[name, part.what] for name, part in PARTS.items()]


def test_an_unknown_part_is_refused_before_anything_is_measured(call: Call) -> None:
    done = call("bench", "rate", "speed")
    assert done.status == ExitStatus.WRONG_INPUT
    assert "speed" in done.err
    assert all(name in done.err for name in PARTS)
    assert not done.out
