"""`testbed write-bw`: what it refuses."""

import pytest

from .conftest import Call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("clos-tiny", "--size", "0"), "--size: found 0, expected a whole number from 1"),
        (("clos-tiny", "--src", "h0"), "--dst"),
        (("clos-tiny", "--src", "h0", "--dst", "h7"), "--dst: found h7"),
        (("clos-tiny", "--src", "h0", "--dst", "h0"), "two different hosts"),
        (("clos-none",), "clos-none"),
    ],
)
def test_wrong_options_are_told_before_anything_is_built(
    call: Call, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    def build(*_: object) -> int:
        raise AssertionError("it was built")

    monkeypatch.setattr("testbed.emulation.perftest.pair.measure", build)
    called = call("write-bw", *arguments)
    assert called.status == 2
    assert message in called.err
