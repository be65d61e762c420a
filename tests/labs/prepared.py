"""Submissions as they come: perfect, wrong, edited, broken, hostile; of labs 2 and 9.

To compare the grades that two machines give:

    python -m tests.labs.prepared make DIR          # once: the submissions, and course.key
    python -m tests.labs.prepared grade DIR FILE    # on each machine
    python -m tests.labs.prepared compare FILE FILE # exit status 1 if a grade differs
"""

import io
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import yaml

from testbed.limits import simulations_at_once
from testbed.studies.labs import runs
from testbed.studies.labs.authoring import solution_of
from testbed.studies.labs.grading.course import Course, grade_all, submissions_in
from testbed.studies.labs.grading.submission import submit
from testbed.studies.labs.library import LABS, SOLUTION, START, load_lab
from testbed.studies.labs.predicting import predict
from testbed.studies.labs.students import student_key
from testbed.studies.labs.work import Work, start

FIRST_FAILURE, PATH_SELECTOR = LABS / "02-first-failure", LABS / "09-path-selector"
COURSE_KEY = b"the key of a whole course"
FULL, FULL_CODE = 16, 18
PREDICTED = 4
CODE_FILE = "files/selector.py"

_OF_A_MACHINE = (
    (re.compile(r"\d+ s of (CPU|waiting)"), r"N s of \1"),  # longer on a slow machine
    (re.compile(r"its process (ended \(-?\d+\)|answers no more)"), "its process ended"),
)
"""What a reason may say of a machine, and what stands for it here."""


def solved(
    directory: Path, student: str, lab: Path = FIRST_FAILURE, course_key: bytes = COURSE_KEY
) -> Work:
    """The work of a student who solved all of a lab, and had its code from the beginning.

    Each run is simulated once: that code of one's own repeats itself is not looked at.
    """
    known = load_lab(lab)
    work = start(known, directory, student, student_key(course_key, student))
    solve = solution_of(known)
    for task, text in solve.predictions().items():
        predict(work, work.task(task), text, None)
    for file in (lab / START).glob("*.py"):
        shutil.copy(lab / SOLUTION / file.name, work.path)
    with patch.object(runs, "_check_repeatable"):
        for run in known.lab.runs:
            made = runs.make_run(work, run, lambda *_: None, drawn=False)
            assert made.summary.verdict == "trusted", made.summary.reasons
    work.answers.write_text(yaml.safe_dump(solve.answers(work.path)))
    return work


Change = Callable[[dict[str, bytes]], object]


def changed(archive: Path, into: Path, name: str, change: Change) -> Path:
    """A copy of a submission in which some files differ."""
    with zipfile.ZipFile(archive) as content:
        files = {entry: content.read(entry) for entry in content.namelist()}
    change(files)
    path = into / f"{name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as copy:
        for entry, data in files.items():
            copy.writestr(entry, data)
    return path


def _answer(files: dict[str, bytes], **answers: object) -> None:
    given = yaml.safe_load(files["answers.yaml"])
    given.update({key.replace("_", "-"): value for key, value in answers.items()})
    files["answers.yaml"] = yaml.safe_dump(given).encode()


def _without(files: dict[str, bytes], kind: str) -> None:
    lines = files["journal.jsonl"].decode().splitlines(keepends=True)
    files["journal.jsonl"] = "".join(
        line for line in lines if json.loads(line)["kind"] != kind
    ).encode()


def _edit_losses(files: dict[str, bytes]) -> None:
    """Double the losses, and answer what these say."""
    name = "runs/failure/losses.parquet"
    losses = pl.read_parquet(io.BytesIO(files[name]))
    out = io.BytesIO()
    pl.concat([losses.with_columns(pl.col("seq") - 1), losses]).write_parquet(out)
    files[name] = out.getvalue()
    _answer(files, awaited=int(losses["seq"].to_list()[0]) - 1)


def _fact(files: dict[str, bytes], **facts: str) -> None:
    files["submission.json"] = json.dumps(
        {**json.loads(files["submission.json"]), **facts}
    ).encode()


def _edit_losses_of_another_version(files: dict[str, bytes]) -> None:
    """Edited records, made by another version as far as all files say."""
    _edit_losses(files)
    _fact(files, code="0" * 16)
    _entries(files, "run", version="0" * 16)
    _manifest(files, "failure", code="0" * 16)


def _edit_losses_and_name_another_version(files: dict[str, bytes]) -> None:
    """Edited records of this version, by their own manifest."""
    _edit_losses(files)
    _fact(files, code="0" * 16)


def _entries(files: dict[str, bytes], kind: str, **content: object) -> None:
    """Change the journal's entries of a kind."""
    lines = []
    for line in files["journal.jsonl"].decode().splitlines():
        entry = json.loads(line)
        if entry["kind"] == kind:
            entry["content"] |= content
        lines.append(json.dumps(entry) + "\n")
    files["journal.jsonl"] = "".join(lines).encode()


def _manifest(files: dict[str, bytes], run: str, **facts: object) -> dict[str, Any]:
    name = f"runs/{run}/manifest.json"
    manifest: dict[str, Any] = {**json.loads(files[name]), **facts}
    files[name] = json.dumps(manifest).encode()
    return manifest


def _in_the_name_of_bob(files: dict[str, bytes]) -> None:
    """Another student's name in all that names one."""
    _fact(files, student="bob")
    _entries(files, "start", student="bob")


def _nonsense(files: dict[str, bytes]) -> None:
    """Answers of which none is right."""
    text = " ".join([*(f"{a}{b}" for a in "abcdefgh" for b in "stuvwxyz"), "98765"])
    wrong = {"substitute": "p9/t1_9", "awaited": 7, "before_it_died": 7, "why_longer": "a"}
    _answer(files, **wrong, explain=text)


def _invalid_emulation(files: dict[str, bytes]) -> None:
    """Nonsense, beside records that say that they were emulated and cannot be trusted."""
    _nonsense(files)
    _entries(files, "run", emulated=1.0, verdict="invalid")
    _manifest(files, "failure", simulated=False)
    files["runs/failure/faults.jsonl"] = b""


def _edited_verdict(files: dict[str, bytes]) -> None:
    """The same, with a verdict that was edited by hand."""
    _invalid_emulation(files)
    _entries(files, "run", verdict="trusted")


def _forged_emulation(files: dict[str, bytes]) -> None:
    """Records of another selector that say that they were emulated, beside code that fails."""
    _entries(files, "run", emulated=1.0)
    for run in ("practice", "hidden-dead", "hidden-slow"):
        scenario = _manifest(files, run)["scenario"]
        scenario["transport"]["spray"] = "adaptive"
        _manifest(files, run, simulated=False, scenario=scenario)
    files[CODE_FILE] = _picking("return self.evs[99].ev").encode()


CHANGES: Mapping[str, tuple[Change, int, str]] = {
    "perfect": (lambda _: None, FULL, ""),
    "empty answers": (lambda f: f.update({"answers.yaml": b"{}\n"}), PREDICTED, "no answer yet"),
    "a wrong choice": (lambda f: _answer(f, why_longer="a"), FULL - 2, "cannot have stopped"),
    "a wrong PSN": (lambda f: _answer(f, awaited=10**9), FULL - 2, "is not what your"),
    "a PSN in words": (lambda f: _answer(f, awaited="many"), FULL - 2, "a number in PSN"),
    "a short text": (lambda f: _answer(f, explain="it was dead"), FULL - 4, "60 words or more"),
    "a text without figures": (
        lambda f: _answer(f, explain=" ".join(f"{a}{b}" for a in "abcdefgh" for b in "stuvwxyz")),
        FULL - 4,
        "does not quote",
    ),
    "a text with a number and no figure": (
        lambda f: _answer(
            f, explain=" ".join([*(f"{a}{b}" for a in "abcdefgh" for b in "stuvwxyz"), "98765"])
        ),
        FULL - 4,
        "does not quote",
    ),
    "broken YAML": (lambda f: f.update({"answers.yaml": b"a: [\n"}), PREDICTED, "answers.yaml:2"),
    "YAML that is a list": (lambda f: f.update({"answers.yaml": b"- a\n"}), PREDICTED, "mapping"),
    "an unknown task": (lambda f: _answer(f, nothing=3), PREDICTED, "the id of a question"),
    "answers of bytes": (lambda f: f.update({"answers.yaml": os.urandom(99)}), PREDICTED, "UTF-8"),
    "a YAML bomb": (
        lambda f: f.update(
            {
                "answers.yaml": b"a: &a [x]\n"
                + b"".join(
                    f"{chr(c)}: &{chr(c)} [{','.join(['*' + chr(c - 1)] * 9)}]\n".encode()
                    for c in range(ord("b"), ord("k"))
                )
            }
        ),
        PREDICTED,
        "more than 100,000 values",
    ),
    "no predictions": (lambda f: _without(f, "prediction"), 0, "no prediction"),
    "no run": (lambda f: _without(f, "run"), 0, "was not made"),
    "edited records": (_edit_losses, FULL - 2, "not what its seed gives"),
    "no records": (
        lambda f: [f.pop(name) for name in [*f] if name.startswith("runs/")],
        FULL,
        "no records of failure were handed in",
    ),
    "damaged records": (
        lambda f: f.update({"runs/failure/losses.parquet": b"PAR1 nonsense"}),
        FULL,
        "losses.parquet",
    ),
    "another version": (lambda f: _fact(f, code="0" * 16), -2, "expected work of testbed"),
    "other questions": (
        lambda f: _fact(f, questions="0" * 16),
        -2,
        "found answers to other questions",
    ),
    "a run of another version": (
        lambda f: _entries(f, "run", version="0" * 16, testbed="0.0.1"),
        -2,
        "found work of testbed 0.0.1, code 0000000000000000",
    ),
    "records of another version": (
        lambda f: _manifest(f, "failure", code="0" * 16),
        -2,
        "remedy: install this version, make the runs again",
    ),
    "edited records of another version": (_edit_losses_of_another_version, -2, "0000000000000000"),
    "edited records that name another version": (
        _edit_losses_and_name_another_version,
        -2,
        "0000000000000000",
    ),
    "no key": (lambda f: _fact(f, key=""), FULL, "another key"),
    "the file of another student": (lambda _: None, FULL, "the same content as"),
    "nonsense on an invalid emulation": (_invalid_emulation, PREDICTED, "not what its seed gives"),
    "nonsense on an edited verdict": (_edited_verdict, PREDICTED, "not what its seed gives"),
    "a long name": (lambda f: _fact(f, student="x" * 100_000), -2, "100000 characters"),
    "another student's name": (lambda f: _fact(f, student="bob"), -1, "another key"),
    "another student's name in all": (
        _in_the_name_of_bob,
        -1,
        "text of explain: as in",
    ),
    "no student": (lambda f: _fact(f, student=""), -2, "--student NAME --key KEY"),
    "an unknown lab": (lambda f: _fact(f, lab="99-none"), -2, "the name of a lab"),
    "escape sequences": (lambda f: _fact(f, student="\x1b[2Jada"), -2, "printable characters"),
    "a lab of its own": (lambda f: _fact(f, lab=str(FIRST_FAILURE)), -2, "the name of a lab"),
    "no journal": (lambda f: f.pop("journal.jsonl"), -2, "a submission"),
    "a journal of nonsense": (lambda f: f.update({"journal.jsonl": b"x\n"}), -2, "journal"),
    "no facts": (lambda f: f.update({"submission.json": b"[]"}), -2, "a submission"),
    "numbers for facts": (
        lambda f: f.update(
            {
                "submission.json": json.dumps(
                    {
                        **dict.fromkeys(("testbed", "questions"), 1),
                        "lab": 2,
                        "student": None,
                        "key": [],
                        "code": {},
                    }
                ).encode()
            }
        ),
        -2,
        "texts",
    ),
    "a path out of it": (lambda f: f.update({"../../evil.txt": b"x"}), -2, "a path within"),
    "2 GB of zeros": (lambda f: f.update({"files/zeros": bytes(70 << 20)}), -2, "64 MiB at most"),
    "a thousand files": (
        lambda f: f.update({f"files/{n}": b"" for n in range(1000)}),
        -2,
        "500 at most",
    ),
}
"""What is changed in a perfect submission, its points, and a reason. -1: whatever; -2: no grade."""


def _picking(body: str, head: str = "") -> str:
    return (
        f"{head}\nclass Selector:\n    def __init__(self, evs, seed):\n        self.evs = evs\n"
        f"    def pick(self, now_ns, flight, avoid):\n        {body}\n"
    )


LOOP = "an endless loop"

CODE: Mapping[str, tuple[str | None, str]] = {
    "perfect": (None, ""),
    LOOP: (
        _picking("while True: pass"),
        "selector.py:6: Selector.pick: found no end within",
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
    "another class": ("class Other: pass\n", "found Selector, expected a class of selector.py"),
    "an empty file": ("", "found Selector, expected a class of selector.py"),
    "EVs that are none": (_picking("return -1"), "an EV that __init__ gets"),
}
"""What a student hands in instead, and what the grade says."""

FORGED: Mapping[str, tuple[Change, str]] = {
    "a forged emulated run": (_forged_emulation, "selector.py:6: Selector.pick: found IndexE"),
    "code changed after the run": (
        lambda f: f.update({CODE_FILE: b"# changed\n" + f[CODE_FILE]}),
        "made with another selector.py",
    ),
}
"""What is changed in a perfect submission of lab 9, and what the grade says."""

WRONG_LAB = "07-which-link"
"""Graded as one of this lab, a submission of another one has no grade."""


def with_code(archive: Path, into: Path, name: str, code: str | None) -> Path:
    path = into / f"{name.replace(' ', '-')}.zip"
    with zipfile.ZipFile(archive) as content, zipfile.ZipFile(path, "w") as copy:
        for entry in content.namelist():
            changed = entry == CODE_FILE and code is not None
            copy.writestr(entry, str(code) if changed else content.read(entry))
    return path


def make(directory: Path) -> None:
    """Make all of them in a new directory, with the course key beside them."""
    directory.mkdir(parents=True)
    (directory / "course.key").write_text(COURSE_KEY.hex())
    perfect = submit(solved(directory / "work", "ada"), directory)
    perfect_code = submit(solved(directory / "work", "ada", PATH_SELECTOR), directory)
    for name, (change, _, _) in CHANGES.items():
        changed(perfect, directory, name.replace(" ", "-"), change)
    for name, (code, _) in CODE.items():
        with_code(perfect_code, directory, f"code-{name}", code)
    for name, (change, _) in FORGED.items():
        changed(perfect_code, directory, f"code-{name.replace(' ', '-')}", change)
    (directory / "no-archive.zip").write_bytes(b"not a zip")
    (directory / "empty.zip").write_bytes(b"")
    (directory / "cut.zip").write_bytes(perfect.read_bytes()[:-500])


def grades(directory: Path) -> dict[str, Any]:
    """The grade of each file, without what depends on the machine's speed, system and paths."""
    found = {}
    paths = submissions_in([directory])
    course = Course(COURSE_KEY, jobs=simulations_at_once())
    place = json.dumps(str(directory.absolute()))[1:-1]
    graded = grade_all(paths, course, lambda *_: None)
    graded += [
        grade.model_copy(update={"file": f"{grade.file} as {WRONG_LAB}"})
        for grade in grade_all([directory / "perfect.zip"], Course(lab=WRONG_LAB), lambda *_: None)
    ]
    for grade in graded:
        text = grade.model_dump_json(exclude={"cpu_s", "confined"}).replace(place, "DIR")
        for said, instead in _OF_A_MACHINE:
            text = said.sub(instead, text)
        found[grade.file] = json.loads(text)
    return found


def compare(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What differs between the grades of two machines."""
    files = sorted({*one, *other})
    return [
        f"{file}: {one.get(file)}\n{' ' * len(file)}  {other.get(file)}"
        for file in files
        if one.get(file) != other.get(file)
    ]


def main(words: list[str]) -> int:
    """Do what the words say; see the top of this file."""
    match words:
        case ["make", directory]:
            make(Path(directory))
        case ["grade", directory, file]:
            Path(file).write_text(json.dumps(grades(Path(directory)), indent=1))
        case ["compare", *files] if len(files) == 2:
            one, other = (json.loads(Path(file).read_text()) for file in files)
            differing = compare(one, other)
            sys.stdout.write("\n".join(differing or [f"{len(one)} grades, all equal"]) + "\n")
            return 1 if differing else 0
        case _:
            sys.stdout.write(str(__doc__))
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
