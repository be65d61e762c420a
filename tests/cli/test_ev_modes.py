"""`testbed ev run`: what it refuses, before anything is built."""

from pathlib import Path

import pytest

from .conftest import Call

PROFILE = """ev_profile:
  kind: {kind}
  evs: {evs}
  fields:
    - {{width: 3, max: 1, mask: {mask}}}
    - {{width: 9, max: 3, mask: 0x1ff}}
"""


@pytest.fixture(autouse=True)
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> int:
        raise AssertionError("it was built")

    monkeypatch.setattr("testbed.emulation.ev_modes.run", build)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hash",), "MODE: found hash, expected ecmp or structured"),
        (("srv6",), "remedy: testbed run runs srv6"),
        (("ecmp", "--dead", "t1_0"), "--dead: found t1_0, expected a path such as p0/t1_1"),
        (("ecmp", "--dead", "p0/t1_9"), "--dead: found p0/t1_9, expected a path from p0/t1_0"),
        (("ecmp", "--t1s", "1"), "--t1s"),
        (("ecmp", "--profile", "none.yaml"), "none.yaml"),
    ],
)
def test_wrong_options(call: Call, arguments: tuple[str, ...], message: str) -> None:
    called = call("ev", "run", *arguments)
    assert called.status == 2
    assert message in called.err


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "generatd"}, "ev_profile.kind: found generatd, expected explicit or generated"),
        ({"evs": "9"}, "4: ev_profile.evs: found 9, expected at most 8, which these fields"),
        ({"mask": "0xf"}, "ev_profile.fields[0].mask: found 0xf, expected at most 0x7"),
    ],
)
def test_wrong_profiles(call: Call, tmp_path: Path, values: dict[str, str], message: str) -> None:
    file = tmp_path / "profile.yaml"
    file.write_text(PROFILE.format(**({"kind": "generated", "evs": "8", "mask": "0x7"} | values)))
    called = call("ev", "run", "structured", "--profile", str(file))
    assert called.status == 2
    assert message.removeprefix("4: ") in called.err
