"""The flow whose single packets a watched run shows."""

from pathlib import Path

import pytest

from testbed.live.stream.measures import flow_in_slow_motion
from testbed.model.errors import InputError
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from tests.cli.conftest import Call, call  # noqa: F401 - a fixture
from tests.live.conftest import FAILURE


def scenario(directory: Path, dilation: int) -> Scenario:
    file = directory / "slow.yaml"
    topology = f"{{base: clos-tiny, dilation: {dilation}}}"
    file.write_text(FAILURE.replace("topology: clos-tiny", f"topology: {topology}"))
    return load_scenario(str(file))


def test_the_chosen_flow_or_the_first_where_time_is_slow(tmp_path: Path) -> None:
    slow, fast = scenario(tmp_path, 100_000), scenario(tmp_path, 10_000)
    assert flow_in_slow_motion(slow, None) == 0
    assert flow_in_slow_motion(slow, "h1,h0", live=True) == 1
    assert flow_in_slow_motion(fast, None, live=True) is None
    assert flow_in_slow_motion(fast, "h1,h0") == 1, "a replay takes its time"
    with pytest.raises(InputError, match="a dilation of 100000 or more"):
        flow_in_slow_motion(fast, "h1,h0", live=True)


@pytest.mark.parametrize(
    ("dilation", "options", "expected"),
    [
        (100_000, ("--packets", "h0,h1"), "a run with --live"),
        (10_000, ("--packets", "h0,h1", "--live"), "topology.dilation=100000"),
        (100_000, ("--packets", "h0,h7", "--live"), "such as h0,h1"),
    ],
    ids=["not watched", "too fast", "no such flow"],
)
def test_a_choice_that_shows_nothing_is_refused_before_the_run(
    tmp_path: Path,
    call: Call,  # noqa: F811 - the fixture
    dilation: int,
    options: tuple[str, ...],
    expected: str,
) -> None:
    scenario(tmp_path, dilation)
    called = call("simulate", "slow.yaml", *options)
    assert called.status == 2
    assert "--packets" in called.err
    assert expected in called.err
    assert not (tmp_path / "results").exists()
