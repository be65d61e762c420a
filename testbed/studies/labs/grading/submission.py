"""A submission: one file with a student's answers, journal, files, and the records of the runs."""

import json
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from testbed.installation import describe_version
from testbed.model.errors import InputError, Problem, printable
from testbed.model.file_names import for_directory, is_there
from testbed.model.run_files.layout import MANIFEST
from testbed.results.code_version import code_version
from testbed.results.whole_file import whole_file
from testbed.rights import acting_for, reading_for
from testbed.studies.labs.answers import ANSWERS
from testbed.studies.labs.lab import FORMAT_VERSION
from testbed.studies.labs.library import START
from testbed.studies.labs.students import MAX_NAME, checked_name, may_read
from testbed.studies.labs.work import JOURNAL, STATE, Entry, Work, parse_entries

SUBMISSION = "submission.json"
RUNS, FILES = "runs", "files"

MAX_BYTES = 64 << 20
"""All content of a submission, unpacked."""

MAX_FILE_BYTES = 16 << 20
MAX_ENTRIES = 500
MAX_LEVELS = 10

_FACTS = ("lab", "student", "key", "code", "testbed", "questions")
_REMEDY = "testbed lab submit makes the file to hand in"
_SUFFIXES = (".json", ".jsonl", ".parquet")
_CHUNK = 1 << 16
_NAME_BYTES = 100
"""Of a student's name in that of the file."""

_COMPRESSIONS = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission, unpacked.

    Attributes:
        directory: its files.
        lab: the name of its lab.
        student: whose it is.
        key: the student's.
        code: a digest of the code with which it was handed in.
        testbed: the version of the testbed that has this code, in words.
        questions: a digest of the lab's questions when it was begun.
        journal: what the student did.
    """

    directory: Path
    lab: str
    student: str
    key: str
    code: str
    testbed: str
    questions: str
    journal: tuple[Entry, ...]

    @property
    def answers(self) -> Path:
        return self.directory / ANSWERS

    @property
    def submitted(self) -> str:
        """When the student last worked on it, by the journal; empty if it has no entry."""
        return self.journal[-1].time if self.journal else ""

    def run(self, name: str) -> Path:
        """The records of a run; the directory may be missing."""
        return self.directory / RUNS / name

    def made(self, run: str) -> Entry | None:
        """The journal's entry of a run that was made: the last one that could be trusted."""
        made = [e for e in self.journal if e.kind == "run" and e.content.get("run") == run]
        trusted = [entry for entry in made if entry.content.get("verdict") == "trusted"]
        return next(reversed(trusted or made), None)

    def versions(self, runs: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The versions of the testbed that made this work, by all that names one: code, words."""
        yield self.code, self.testbed
        for run in runs:
            entry = self.made(run)
            if entry is not None:
                version, testbed = (entry.content.get(key) for key in ("version", "testbed"))
                yield short(version or "unknown"), short(testbed or "unknown")
            try:
                text = (self.run(run) / MANIFEST).read_text(encoding="utf-8")
                recorded = json.loads(text)["code"]
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                continue  # damaged records are compared, and differ
            yield short(recorded), f"that made the records of {run}"


def submit(work: Work, into: Path) -> Path:
    """Write a student's work into one file.

    Args:
        work: the student's.
        into: the directory of the file; it is called after the lab and the student.

    Raises:
        InputError: it cannot be written, or a file of the work cannot be read.
    """
    if not is_there(work.answers, Path.is_file):
        work.read_answers()  # says what is missing
    content = _content(work)
    student = for_directory(work.student or "alone", _NAME_BYTES)
    name = f"{work.assignment.directory.name}-{student}.zip"
    begun = work.start.content
    facts = {key: begun.get(key, "") for key in ("lab", "student", "key", "questions")}
    facts |= {"code": code_version(), "testbed": describe_version()}
    path = into / name
    try:
        with (
            acting_for(into),
            whole_file(path) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            archive.writestr(SUBMISSION, json.dumps({"format_version": FORMAT_VERSION, **facts}))
            for place, of_file in content.items():
                archive.writestr(place, of_file)
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        remedy = "name a directory that exists: --into DIR"
        raise InputError.of(str(path), found, "a file that can be written", remedy) from None
    return path


def _content(work: Work) -> dict[str, bytes]:
    """The files that a student hands in, each by its place in the submission.

    Raises:
        InputError: one cannot be read, such as a link to a file that the student may not read.
    """
    files = {JOURNAL: work.path / STATE / JOURNAL, ANSWERS: work.answers}
    counted = {run: work.counted_run(run) for run in work.assignment.directory.lab.runs}
    with reading_for(work.path), may_read():
        for path in _files_from_start(work):
            files[f"{FILES}/{path.as_posix()}"] = work.path / path
        for run in counted:
            for file in filter(Path.is_file, work.assignment.code_files(run)):
                files[f"{FILES}/{file.relative_to(work.path).as_posix()}"] = file
        for run, entry in counted.items():
            if entry is None:
                continue
            for record in sorted((work.path / str(entry.content["directory"])).iterdir()):
                if record.suffix in _SUFFIXES:
                    files[f"{RUNS}/{run}/{record.name}"] = record
        return {place: file.read_bytes() for place, file in files.items()}


def notes(work: Work) -> list[str]:
    """What a student should mend before handing work in: what grading would find."""
    said: dict[str, None] = {}
    try:
        for problem in work.read_answers().cut.values():
            said[f"This answer does not count before {problem}"] = None
    except InputError as error:
        said[f"No answer counts before {error.problems[0]}"] = None
    runs = work.assignment.directory.lab.runs
    for run in runs:
        try:
            work.assignment.scenario(run)
        except InputError as error:  # of the student's code, which several runs may use
            said[f"No run of your code counts before {error.problems[0]}"] = None
    stale = [run for run in runs if work.made_run(run) and not work.counted_run(run)]
    if stale:
        why = "their files are gone, or your code or the testbed was changed since"
        said[f"make these runs again: {', '.join(stale)} ({why})"] = None
    seen = [run for run in runs if work.last("emulated", run=run) and not work.made_run(run)]
    if seen:
        names = ", ".join(seen)
        said[f"make these runs also without --form emulated: {names} (simulated runs count)"] = None
    return [*said]


def not_gradable(work: Work) -> list[str]:
    """Why a student would have to hand work in again; empty if it can be graded."""
    reasons = []
    if not work.student:
        reasons.append(
            "it was begun without a name and a key. In a course: cd .. and testbed lab start LAB "
            "--reset --student NAME --key KEY"
        )
    if (changed := work.changed_since_start()) is not None:
        reasons.append(str(changed))
    made = {run: work.made_run(run) for run in work.assignment.directory.lab.runs}
    others = {run: e for run, e in made.items() if e and e.content.get("version") != code_version()}
    for run, entry in others.items():
        begun = entry.content.get("testbed", "another version")
        reasons.append(
            f"the run {run} was made with testbed {begun}, and this is {describe_version()}. Make "
            f"it again: testbed lab run {run}"
        )
    return reasons


def _files_from_start(work: Work) -> list[Path]:
    """The files of the work directory that the lab brought for the student to change."""
    start = work.assignment.directory.path / START
    files = (path.relative_to(start) for path in sorted(start.rglob("*")) if path.is_file())
    return [file for file in files if (work.path / file).is_file()]


def unpack(archive: Path, into: Path) -> Submission:
    """Unpack a submission into an empty directory.

    Raises:
        InputError: it is no submission, is too large, or has files where none may be.
    """
    try:
        size = archive.stat().st_size
        if not archive.is_file() or size > MAX_BYTES:
            found = f"{size} bytes" if archive.is_file() else "no plain file"
            expected = f"a submission of {MAX_BYTES >> 20} MiB at most"
            raise InputError.of(str(archive), found, expected, _REMEDY)
        with zipfile.ZipFile(archive) as content:
            _check(archive, content.infolist())
            for entry in content.infolist():
                _extract(archive, content, entry, into)
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, EOFError, ValueError) as error:
        raise InputError.of(str(archive), _shown(error), "a submission", _REMEDY) from None
    return read_submission(archive, into)


def read_submission(name: Path, directory: Path) -> Submission:
    """Read a submission that was unpacked.

    Raises:
        InputError: a part is missing, is no plain file, or is not what it should be.
    """
    _check_files(name, directory)
    try:
        facts = json.loads((directory / SUBMISSION).read_text(encoding="utf-8"))
        journal = (directory / JOURNAL).read_text(encoding="utf-8")
        texts = {key: facts[key] for key in _FACTS}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        found = f"{SUBMISSION}: {type(error).__name__}: {error}"
        found = _shown(error) if isinstance(error, OSError) else found
        raise InputError.of(str(name), found, "a submission", _REMEDY) from None
    if not all(isinstance(text, str) for text in texts.values()):
        raise InputError.of(f"{name}: {SUBMISSION}", "", f"texts for {', '.join(_FACTS)}")
    for key, text in texts.items():
        if text:
            checked_name(f"{name}: {SUBMISSION}: {key}", text)
    return Submission(directory, journal=tuple(parse_entries(journal, name)), **texts)


def _check_files(name: Path, directory: Path) -> None:
    """Refuse links, pipes, devices, and more than a submission may have, before any of it is read.

    What links lead to is not the student's, and messages quote what is read.

    Raises:
        InputError: there is one, or too much.
    """
    total, most = 0, MAX_ENTRIES * MAX_LEVELS
    paths = sorted(islice(directory.rglob("*"), most + 1))
    if len(paths) > most:
        raise InputError.of(str(name), f"more than {most} files", "a submission", _REMEDY)
    for path in paths:
        status, shown = path.lstat(), short(path.relative_to(directory).as_posix())
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            what = "a link" if stat.S_ISLNK(status.st_mode) else "a pipe or a device"
            raise InputError.of(str(name), f"{shown}, {what}", "a plain file", _REMEDY)
        total += status.st_size
        if status.st_size > MAX_FILE_BYTES or total > MAX_BYTES:
            found = f"{shown}, with which it has {total} bytes"
            most_of = f"{MAX_FILE_BYTES >> 20} MiB at most in a file, {MAX_BYTES >> 20} in all"
            raise InputError.of(str(name), found, most_of, _REMEDY)


def short(said: object) -> str:
    """What a student's file says, as a text for a message: one line that is not long."""
    return " ".join(printable(str(said)[:MAX_NAME]).split())


def _shown(error: Exception) -> str:
    """What is wrong with a file, without the directory that it was unpacked to."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{short(Path(error.filename).name)}: {(error.strerror or str(error)).lower()}"
    return str(error)


def _check(archive: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Refuse an archive that is too large or writes beside its directory."""
    problems = []
    if len(entries) > MAX_ENTRIES:
        problems.append(Problem(str(archive), f"{len(entries)} files", f"{MAX_ENTRIES} at most"))
    for entry in entries:
        path, name = PurePosixPath(entry.filename), short(entry.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename:
            problems.append(Problem(str(archive), name, "a path within the submission"))
        if len(path.parts) > MAX_LEVELS:
            problems.append(Problem(str(archive), name, f"a path of {MAX_LEVELS} parts at most"))
        if stat.S_ISLNK(entry.external_attr >> 16):
            problems.append(Problem(str(archive), f"{name}, a link", "a plain file"))
        if entry.compress_type not in _COMPRESSIONS:
            found = f"{name}, compressed by method {entry.compress_type}"
            problems.append(Problem(str(archive), found, "a file that is deflated or stored"))
    if sum(entry.file_size for entry in entries) > MAX_BYTES:
        expected = f"{MAX_BYTES >> 20} MiB at most"
        problems.append(Problem(str(archive), "more content than that", expected))
    if problems:
        raise InputError(problems[:1])


def _extract(
    archive: Path, content: zipfile.ZipFile, entry: zipfile.ZipInfo, directory: Path
) -> None:
    """Extract a file; what an entry says of its size is not believed."""
    if entry.is_dir():
        return
    path = directory / entry.filename
    path.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with content.open(entry) as source, path.open("wb") as target:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > MAX_FILE_BYTES:
                expected = f"{MAX_FILE_BYTES >> 20} MiB at most"
                where = f"{archive}: {short(entry.filename)}"
                raise InputError.of(where, "a larger file", expected)
            target.write(chunk)
