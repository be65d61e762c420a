"""A run of a slow machine, whose times are all longer, has the answers of any other."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from testbed.campaign.plan import slowed
from testbed.labs import authoring, runs
from testbed.labs.authoring import try_lab
from testbed.labs.checking import right_answer, unit_of
from testbed.labs.library import START, lab_directories, load_lab
from testbed.labs.work import Work
from testbed.model.scenario import Scenario
from testbed.results.run_directory import RunDirectory
from testbed.sim import simulate

pytestmark = [pytest.mark.simulated, pytest.mark.long]

WITHOUT_CODE = [path for path in lab_directories() if not (path / START).is_dir()]
"""The others take a minute each."""


@pytest.mark.parametrize("directory", WITHOUT_CODE, ids=lambda path: str(path.name))
def test_longer_times_change_no_answer(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `testbed lab run --emulate --slower 2`, but simulated. Only seconds are doubled."""
    monkeypatch.setattr(runs, "emulate", _simulate_slower)
    monkeypatch.setattr(authoring, "SLOWER", (2,))
    lab, works = load_lab(directory), []
    for slower in (False, True):
        scratch = tmp_path / str(slower)
        findings = try_lab(lab, scratch, 1, lambda *_: None, emulated=slower)
        assert not [str(finding) for finding in findings]
        works.append(Work(scratch / "1" / lab.name))
    for task in lab.lab.tasks:
        if task.figure is not None:
            usual, slow = (right_answer(task, work.evidence()) for work in works)
            if isinstance(usual, int | float):
                expected = usual * (2 if unit_of(task) == "s" else 1)
                assert slow == pytest.approx(expected, rel=0.01, abs=0.01), task.id
            else:
                assert slow == usual, task.id


def _simulate_slower(scenario: Scenario, results: Path, slower: float) -> RunDirectory:
    """What `emulate` makes, without root."""
    made = RunDirectory.create(results, scenario.name, scenario.seed, datetime.now(UTC))
    simulate(slowed(scenario, slower), made.path)
    return made
