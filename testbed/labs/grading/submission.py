"""A submission: one file with a student's answers, journal, files, and the records of the runs."""

import hashlib
import json
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from testbed.labs.answers import ANSWERS
from testbed.labs.journal import Entry, parse_entries
from testbed.labs.lab import FORMAT_VERSION
from testbed.labs.library import START
from testbed.labs.work import JOURNAL, STATE, Work
from testbed.model.errors import InputError, Problem

SUBMISSION = "submission.json"
RUNS, FILES = "runs", "files"

MAX_BYTES = 64 << 20
"""All content of a submission, unpacked."""

MAX_FILE_BYTES = 16 << 20
MAX_ENTRIES = 500

_REMEDY = "testbed lab submit makes the file to hand in"
_SUFFIXES = (".json", ".jsonl", ".parquet")
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission, unpacked.

    Attributes:
        directory: its files.
        lab: the name of its lab.
        student: whose it is.
        key: the student's.
        code: which code made its runs.
        journal: what the student did.
    """

    directory: Path
    lab: str
    student: str
    key: str
    code: str
    journal: tuple[Entry, ...]

    @property
    def answers(self) -> Path:
        """The student's answers."""
        return self.directory / ANSWERS

    def run(self, name: str) -> Path:
        """The records of a run; the directory may be missing."""
        return self.directory / RUNS / name


def submit(work: Work, into: Path) -> Path:
    """Write a student's work into one file.

    Args:
        work: the student's.
        into: the directory of the file; it is called after the lab and the student.

    Raises:
        InputError: it cannot be written.
    """
    if not work.answers.is_file():
        work.read_answers()  # says what is missing
    directory = work.assignment.directory
    name = f"{directory.name}-{_in_file_name(work.student or 'alone')}.zip"
    facts = {key: work.start.content[key] for key in ("lab", "student", "key", "code")}
    path = into / name
    temporary = path.with_suffix(".part")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(SUBMISSION, json.dumps({"format_version": FORMAT_VERSION, **facts}))
            archive.write(work.path / STATE / JOURNAL, JOURNAL)
            archive.write(work.answers, ANSWERS)
            for file in _files_from_start(work):
                archive.write(work.path / file, f"{FILES}/{file.as_posix()}")
            for run in directory.lab.runs:
                entry = work.run_to_hand_in(run)
                if entry is None:
                    continue
                for record in sorted((work.path / str(entry.content["directory"])).iterdir()):
                    if record.suffix in _SUFFIXES:
                        archive.write(record, f"{RUNS}/{run}/{record.name}")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        found = (error.strerror or str(error)).lower()
        remedy = "name a directory that exists: --into DIR"
        raise InputError.of(str(path), found, "a file that can be written", remedy) from None
    return path


def _files_from_start(work: Work) -> list[Path]:
    """The files of the work directory that the lab brought for the student to change."""
    start = work.assignment.directory.path / START
    files = (path.relative_to(start) for path in sorted(start.rglob("*")) if path.is_file())
    return [file for file in files if (work.path / file).is_file()]


def _in_file_name(text: str) -> str:
    """A text as a part of a file's name."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in text)


def unpack(archive: Path, into: Path) -> Submission:
    """Unpack a submission into an empty directory.

    Raises:
        InputError: it is no submission, is too large, or has files where none may be.
    """
    try:
        with zipfile.ZipFile(archive) as content:
            _check(archive, content.infolist())
            for entry in content.infolist():
                _extract(archive, content, entry, into)
    except (zipfile.BadZipFile, OSError, RuntimeError, EOFError, ValueError) as error:
        raise InputError.of(str(archive), str(error), "a submission", _REMEDY) from None
    return read_submission(archive, into)


def read_submission(name: Path, directory: Path) -> Submission:
    """Read a submission that was unpacked.

    Args:
        name: what messages call it.
        directory: its files.

    Raises:
        InputError: a part is missing, is a link, or is not what it should be.
    """
    _refuse_links(name, directory)
    try:
        facts = json.loads((directory / SUBMISSION).read_text(encoding="utf-8"))
        journal = (directory / JOURNAL).read_text(encoding="utf-8")
        texts = {key: facts[key] for key in ("lab", "student", "key", "code")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError.of(str(name), _shown(error), "a submission", _REMEDY) from None
    if not all(isinstance(text, str) for text in texts.values()):
        raise InputError.of(f"{name}: {SUBMISSION}", "", "texts for lab, student, key and code")
    unprintable = [key for key, text in texts.items() if not text.isprintable()]
    if unprintable:
        raise InputError.of(f"{name}: {SUBMISSION}: {unprintable[0]}", "control characters", "text")
    return Submission(directory, journal=tuple(parse_entries(journal, name)), **texts)


def _refuse_links(name: Path, directory: Path) -> None:
    """Refuse links: what they lead to is not the student's, and messages quote what is read.

    Raises:
        InputError: there is one.
    """
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            found = f"{path.relative_to(directory).as_posix()}, a link"
            raise InputError.of(str(name), found, "a plain file", _REMEDY)


def content_digest(directory: Path) -> str:
    """A digest of all that was handed in, however it was packed."""
    digest = hashlib.sha256()
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(directory).as_posix()}\n{content}\n".encode())
    return digest.hexdigest()


def _shown(error: Exception) -> str:
    """What is wrong with a file, without the directory that it was unpacked to."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{Path(error.filename).name}: {(error.strerror or str(error)).lower()}"
    return f"{SUBMISSION}: {type(error).__name__}: {error}"


def _check(archive: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Refuse an archive that is too large or writes beside its directory."""
    problems = []
    if len(entries) > MAX_ENTRIES:
        problems.append(Problem(str(archive), f"{len(entries)} files", f"{MAX_ENTRIES} at most"))
    for entry in entries:
        path = PurePosixPath(entry.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename:
            problems.append(Problem(str(archive), entry.filename, "a path within the submission"))
        if stat.S_ISLNK(entry.external_attr >> 16):
            problems.append(Problem(str(archive), f"{entry.filename}, a link", "a plain file"))
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
                raise InputError.of(f"{archive}: {entry.filename}", "a larger file", expected)
            target.write(chunk)
