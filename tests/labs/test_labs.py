"""Every lab that ships: its texts, and for some students that starters fail and solutions pass."""

from pathlib import Path

import pytest

from testbed.labs.authoring import SEEDS, try_lab
from testbed.labs.library import lab_directories, load_lab


@pytest.mark.simulated
@pytest.mark.parametrize("directory", lab_directories(), ids=lambda path: str(path.name))
def test_starters_fail_and_solutions_pass(directory: Path, tmp_path: Path) -> None:
    findings = try_lab(load_lab(directory), tmp_path, SEEDS, lambda *_: None)
    assert not [str(finding) for finding in findings]
