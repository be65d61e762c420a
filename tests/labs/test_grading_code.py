"""Grades of submissions with code of the student's own: good, wrong, hostile."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from testbed.labs.authoring import answer_all
from testbed.labs.grading.course import Course, grade_all
from testbed.labs.grading.grade import Grade
from testbed.labs.grading.submission import submit
from testbed.labs.library import LABS, load_lab
from testbed.labs.students import student_key
from testbed.labs.work import start

COURSE_KEY = b"the key of a whole course"
FULL = 18
FILE = "files/selector.py"


def _ignore(*_: object) -> None:
    pass


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission of lab 9 in which everything is right."""
    directory = tmp_path_factory.mktemp("ada")
    lab = load_lab(LABS / "09-path-selector")
    work = start(lab, directory, "ada", student_key(COURSE_KEY, "ada"))
    assert answer_all(work) == []
    return submit(work, directory)


def _picking(body: str, head: str = "") -> str:
    return (
        f"{head}\nclass Selector:\n    def __init__(self, evs, seed):\n        self.evs = evs\n"
        f"    def pick(self, now_ns, flight, avoid):\n        {body}\n"
    )


CODE: Mapping[str, tuple[str | None, str]] = {
    "perfect": (None, ""),
    "an endless loop": (
        _picking("while True: pass"),
        "selector.py:6: Selector.pick: found Time",
    ),
    "a fork bomb": (_picking("while True: os.fork()", "import os"), "BlockingIOError"),
    "2 GB of output": (
        _picking("[os.write(4, b'x' * 65536) for _ in range(32768)]", "import os"),
        "limits",
    ),
    "2 GB of memory": (_picking("return len(bytearray(2 << 30))"), "MemoryError"),
    "a signal to its process group": (_picking("os.kill(0, 9)", "import os"), "found None"),
    "hardly a packet": (
        _picking("return None if flight else self.evs[0].ev"),
        "does not count: it cannot be trusted",
    ),
    "an exit": (_picking("os._exit(0)", "import os"), "its process ended (0)"),
    "an error": (_picking("return self.evs[99].ev"), "selector.py:6: Selector.pick: found IndexE"),
    "no Python": ("class Selector(:\n", "a file that is valid Python"),
    "another class": ("class Other: pass\n", "a class that selector.py defines"),
    "an empty file": ("", "a class that selector.py defines"),
    "chance": (
        _picking("return random.choice(self.evs).ev", "import random"),
        "not what its seed gives",
    ),
    "EVs that are none": (_picking("return -1"), "one of the EVs"),
}
"""What a student hands in instead, and what the grade says."""


@pytest.mark.simulated
def test_whatever_code_is_handed_in_it_is_graded(perfect: Path, tmp_path: Path) -> None:
    files = {name: _with_code(perfect, tmp_path, name, code) for name, (code, _) in CODE.items()}
    course = Course(COURSE_KEY, jobs=2)
    first = grade_all([*files.values()], course, _ignore)
    for name, graded in zip(files, first, strict=True):
        said = " ".join([graded.error, *graded.remarks, *(task.reason for task in graded.tasks)])
        assert not graded.error, (name, said)
        assert CODE[name][1] in said, (name, said)
        assert (graded.points == FULL) == (name == "perfect"), (name, graded.points)
        assert str(tmp_path) not in said
    some = [files[name] for name in ("perfect", "a fork bomb", "an error")]
    again = grade_all(some, course, _ignore)
    kept = [graded for graded in first if graded.file in {file.name for file in some}]
    for one, other in zip(again, kept, strict=True):
        assert _without_cpu(one).model_dump() == _without_cpu(other).model_dump()


def _with_code(archive: Path, into: Path, name: str, code: str | None) -> Path:
    path = into / f"{name.replace(' ', '-')}.zip"
    with zipfile.ZipFile(archive) as content, zipfile.ZipFile(path, "w") as copy:
        for entry in content.namelist():
            changed = entry == FILE and code is not None
            copy.writestr(entry, str(code) if changed else content.read(entry))
    return path


def _without_cpu(graded: Grade) -> Grade:
    return graded.model_copy(update={"cpu_s": 0.0})
