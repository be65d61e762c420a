"""From the start of a lab to its first check on systems that lack what Linux has."""

from pathlib import Path

import pytest

from tests.other_systems import LACKING, execute

LINUX_ONLY = ("testbed.fabric", "testbed.controller", "testbed.endpoint", "testbed.experiment")
"""Parts of the testbed for real packets alone."""

LAB = """
call("lab", "list")
call("lab", "start", "1")
os.chdir("01-the-map")
call("topo", "clos-4plane")
call("paths", "clos-4plane", "h0", "h5")
call("trace", "clos-4plane", "h0", "h5", "--path", "p2/t1_3")
call("lab", "check", status=1)
call("lab", "hint", "usid")
call("lab", "predict", "paths-used", "4")
call("lab", "run", "--no-figures")
call("lab", "table", "walk", "transmissions", "--rows", "2")
call("lab", "check", status=1)
call("lab", "status")
call("lab", "submit")
"""


@pytest.mark.simulated
@pytest.mark.parametrize("system", LACKING)
def test_a_lab_needs_nothing_that_only_linux_has(system: str, tmp_path: Path) -> None:
    done = execute(system, LAB, tmp_path, LINUX_ONLY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "01-the-map/01-the-map-alone.zip").is_file()
