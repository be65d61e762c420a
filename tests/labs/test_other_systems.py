"""From the start of a lab to its first check on systems that lack what Linux has."""

from pathlib import Path

import pytest

from testbed.results.code_version import code_version
from testbed.studies.labs.authoring import trial_key
from testbed.studies.labs.grading.submission import submit
from testbed.studies.labs.library import LABS, load_lab
from testbed.studies.labs.work import start
from tests.other_systems import LACKING, execute

LINUX_ONLY = (
    "testbed.emulation.fabric",
    "testbed.emulation.controller",
    "testbed.emulation.endpoint",
    "testbed.emulation.experiment",
)
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
call("lab", "submit", status=1)  # as it has no name and key
"""


@pytest.mark.simulated
@pytest.mark.parametrize("system", LACKING)
def test_a_lab_needs_nothing_that_only_linux_has(system: str, tmp_path: Path) -> None:
    done = execute(system, LAB, tmp_path, LINUX_ONLY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "01-the-map/01-the-map-alone.zip").is_file()


GRADE = """
import testbed.host.own_code
from pathlib import Path
from testbed.studies.labs.grading.commands import _print_grades
from testbed.studies.labs.grading.grade import grade
from testbed.studies.labs.library import LABS

testbed.host.own_code.sys = type("sys", (), {"platform": "win32"})
_print_grades([grade(next(Path().glob("*.zip")), LABS, None, Path("scratch"))], with_remarks=True)
"""


@pytest.mark.simulated
def test_grading_on_windows_says_that_code_ran_without_limits(tmp_path: Path) -> None:
    lab = load_lab(LABS / "09-path-selector")
    work = start(lab, tmp_path, "ada", trial_key(1))
    for task in lab.lab.predictions("practice"):
        work.journal.append("prediction", task=task.id, value=1.0, text="1 RTT", within=0.5)
    digest = work.assignment.code_digest("practice")
    made = {"run": "practice", "directory": "results/x", "verdict": "trusted"}
    work.journal.append("run", **made, code=digest, version=code_version())
    selector = work.path / "selector.py"
    selector.write_text(
        "class Selector:\n    def __init__(self, evs, seed):\n        self.evs = evs\n"
        "    def pick(self, now_ns, flight, avoid):\n        return self.evs[99].ev\n"
    )
    submit(work, tmp_path)
    (tmp_path / "scratch").mkdir()
    done = execute("Windows", GRADE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Students' code ran without limits" in done.stdout
    assert "remedy: grade in a container or a virtual machine with Linux" in done.stdout
