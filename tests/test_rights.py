"""Root writes in other users' directories what they may write, and follows no link further."""

import os
import shutil
import signal
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.cli.operating import run_mode
from testbed.emulation.experiment.machine import Capacity, load_capacity, save_capacity
from testbed.live.serving import drop_rights
from testbed.model.errors import ExitStatus, InputError
from testbed.results.run_directory import making_run
from testbed.rights import acting_for, as_root, caller, reading_for
from testbed.sandbox.processes import spawn
from testbed.studies.labs.authoring import new_lab
from testbed.studies.labs.grading.course import Course, grade_all
from testbed.studies.labs.grading.grades import Grade
from testbed.studies.labs.grading.submission import submit
from testbed.studies.labs.library import LABS, load_lab
from testbed.studies.labs.runs import _show
from testbed.studies.labs.work import set_aside, start
from tests.commands import completed

pytestmark = pytest.mark.root

OWNER, CALLER = 12345, 23456


@pytest.fixture
def home(open_place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of another user, in places of root that all may enter."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    home = open_place / "home"
    home.mkdir()
    os.chown(home, OWNER, OWNER)
    secret = open_place / "secret"
    secret.mkdir()
    (secret / "file").write_text("root's", encoding="utf-8")
    yield home
    assert [*secret.iterdir()] == [secret / "file"]
    assert (secret / "file").read_text(encoding="utf-8") == "root's"


def sudo(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    """Be called by a user through sudo."""
    monkeypatch.setenv("SUDO_UID", str(uid))
    monkeypatch.setenv("SUDO_GID", str(uid))


@pytest.mark.parametrize("by_sudo", [False, True])
def test_a_run_belongs_to_the_owner_of_its_place(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, by_sudo: bool
) -> None:
    if by_sudo:
        sudo(monkeypatch, OWNER)
    with making_run(home / "results", "x", 1) as run:
        (run.path / "raw").mkdir()
        run.write("run.json", "{}")
    made = [home / "results", *(home / "results").rglob("*")]
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in made} == {(OWNER, OWNER)}
    assert any(path.is_symlink() for path in made)


def test_where_the_caller_may_not_write_root_acts_for_the_owner(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sudo(monkeypatch, CALLER)
    home.chmod(0o755)
    with acting_for(home):
        (home / "owners").touch()
    home.chmod(0o777)
    with acting_for(home):
        (home / "callers").touch()
    with acting_for(home.parent):  # of root, where only root may write
        (home.parent / "roots").touch()
    owners = {path.name: path.stat().st_uid for path in (*home.iterdir(), home.parent / "roots")}
    assert owners == {"owners": OWNER, "callers": CALLER, "roots": 0}


@pytest.mark.parametrize("number", ["4294967295", "4294967296", "9" * 5000, "-1", "", "x"])
def test_a_caller_who_cannot_be_is_none(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    for uid, gid in ((number, "1"), ("1", number)):
        monkeypatch.setenv("SUDO_UID", uid)
        monkeypatch.setenv("SUDO_GID", gid)
        assert caller() is None


def test_the_server_of_the_page_is_nobody_where_the_caller_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel takes the greatest number for no change."""
    sudo(monkeypatch, 2**32 - 1)

    def rights(_: object) -> list[int]:
        drop_rights()
        return [*os.getresuid(), *os.getresgid()]

    with spawn(rights, title="the server", isolated=False) as server:
        assert 0 not in server.result()


def test_captures_of_an_ev_mode_belong_to_the_caller(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Done(Exception):  # noqa: N818 - no error
        pass

    def run(_: object, captures: Path) -> None:
        (captures / "link.pcapng").touch()
        raise Done

    monkeypatch.setattr("testbed.emulation.ev_modes.run", run)
    monkeypatch.setattr("testbed.emulation.fabric.capabilities.require", lambda: None)
    with pytest.raises(Done):
        run_mode("ecmp", pcap=home / "pcaps")
    made = [*home.rglob("*")]
    assert {path.stat().st_uid for path in made} == {OWNER}
    assert len(made) == 2
    with pytest.raises(InputError, match=r"--pcap: .*not a directory"):
        run_mode("ecmp", pcap=home / "pcaps" / "link.pcapng" / "below")


@pytest.mark.parametrize("which", ["results", "scenario", "run"])
def test_a_directory_that_is_swapped_during_the_run_leads_nowhere(home: Path, which: str) -> None:
    results = home / "results"
    with making_run(results, "x", 1) as run:
        swapped = {"results": results, "scenario": run.path.parent, "run": run.path}[which]
        swapped.rename(home / "away")
        target = home.parent / "secret"
        swapped.symlink_to(target)
        with as_root():
            inside = target / run.path.relative_to(swapped)
            inside.mkdir(parents=True, exist_ok=True)
        with pytest.raises(PermissionError):
            run.write("file", "stranger's")
    while inside != target:
        inside.rmdir()
        inside = inside.parent


@pytest.mark.parametrize("link", ["results", "results/x"])
def test_a_link_that_was_there_before_leads_nowhere(home: Path, link: str) -> None:
    place = home / link
    place.parent.mkdir(exist_ok=True)
    os.chown(place.parent, OWNER, OWNER)
    place.symlink_to(home.parent / "secret")
    os.chown(place, OWNER, OWNER, follow_symlinks=False)
    with pytest.raises(InputError, match="Permission denied"), making_run(home / "results", "x", 1):
        pass


@pytest.mark.parametrize("link", [".cache", ".cache/mrc-testbed"])
def test_the_capacity_is_not_written_through_links(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, link: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (home / link).parent.mkdir(exist_ok=True)
    os.chown((home / link).parent, OWNER, OWNER)
    (home / link).symlink_to(home.parent / "secret")
    saved = save_capacity(Capacity(1.0, 2.0, 3.0))
    assert saved.parent.parent == tmp_path
    assert load_capacity() == Capacity(1.0, 2.0, 3.0)


@pytest.mark.parametrize("by_sudo", [False, True])
def test_work_on_a_lab_belongs_to_the_student(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, by_sudo: bool
) -> None:
    if by_sudo:
        sudo(monkeypatch, OWNER)
    monkeypatch.setattr(
        "testbed.studies.labs.grading.course._grade_apart", lambda path, _: Grade(file=path.name)
    )
    for _ in range(2):
        work = start(load_lab(LABS / "02-first-failure"), home, "", None)
        work.journal.append("hint", task="awaited", number=1)
        submission = submit(work, home)
        set_aside(work.path)
    new_lab("11-mine", home / "labs")
    grade_all([submission], Course(cache=home / "kept"), lambda *_: None)
    assert len([*(home / "kept").iterdir()]) == 1
    made = [*home.rglob("*")]
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in made} == {(OWNER, OWNER)}


def test_a_submission_and_a_journal_are_not_written_through_links(home: Path) -> None:
    work = start(load_lab(LABS / "02-first-failure"), home, "", None)
    target = home.parent / "secret" / "file"
    for suffix in ("zip", "part"):
        (work.path / f"02-first-failure-alone.{suffix}").symlink_to(target)
    assert submit(work, work.path).stat().st_uid == OWNER
    journal = work.path / ".lab" / "journal.jsonl"
    journal.unlink()
    target.write_text("", encoding="utf-8")
    journal.symlink_to(target)
    os.chown(journal, OWNER, OWNER, follow_symlinks=False)
    with pytest.raises(InputError, match="permission denied"):
        work.journal.append("hint", task="awaited", number=1)
    assert not target.read_bytes()
    target.write_text("root's", encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("submit", "answers.yaml"),
        ("submit", ".lab"),
        ("submit", ".lab/journal.jsonl"),
        ("check", "answers.yaml"),
        ("status", ".lab/journal.jsonl"),
    ],
)
def test_a_students_links_lead_only_to_what_they_may_read(
    home: Path, command: str, place: str
) -> None:
    """Whatever a command reads of the work, it shows and hands in nothing of root's."""
    secret = home.parent / "hidden"
    shutil.copytree(home.parent / "secret", secret)
    for file in ("answers.yaml", "journal.jsonl"):
        (secret / file).write_text("hidden: from students\n", encoding="utf-8")
    secret.chmod(0o700)
    work = start(load_lab(LABS / "02-first-failure"), home, "", None)
    linked = work.path / place
    linked.rename(home / "moved")
    linked.symlink_to(secret if place == ".lab" else secret / linked.name)
    as_student = {"SUDO_UID": str(OWNER), "SUDO_GID": str(OWNER)}
    lab = [sys.executable, "-P", "-m", "testbed", "lab", command]
    done = completed(lab, cwd=work.path, env=os.environ | as_student)
    assert done.returncode in {0, 1, 2}, done.stderr
    assert "hidden: from" not in done.stdout + done.stderr
    for archive in work.path.glob("*.zip"):
        with zipfile.ZipFile(archive) as content:
            assert not any(b"hidden: from" in content.read(name) for name in content.namelist())


ANSWERS, CODE = ("02-first-failure", "answers.yaml"), ("09-path-selector", "selector.py")


@pytest.mark.parametrize(
    ("command", "what", "link"),
    [
        ("submit", ANSWERS, "hidden"),
        ("check", ANSWERS, "too long"),
        ("check", ANSWERS, "pipe"),
        ("submit", CODE, "hidden"),
        ("run", CODE, "hidden"),
        ("run", CODE, "pipe"),
        ("run", CODE, "loop"),
    ],
)
def test_a_file_that_a_student_cannot_read_is_named(
    home: Path, command: str, what: tuple[str, str], link: str
) -> None:
    """Where the student, and not root for them, gives the command."""
    lab, place = what
    hidden = home.parent / "hidden"
    hidden.mkdir(mode=0o700)
    work = start(load_lab(LABS / lab), home, "", None)
    for task in work.assignment.directory.lab.tasks:
        if task.is_prediction:
            work.journal.append("prediction", task=task.id, value=1.0, within=0.5)
    file = work.path / place
    file.unlink()
    if link == "pipe":
        os.mkfifo(file)
    else:
        leads = {"hidden": str(hidden / "file"), "too long": "x" * 300, "loop": place}
        file.symlink_to(leads[link])
    done = completed(
        [sys.executable, "-P", "-m", "testbed", "lab", command],
        cwd=work.path, user=OWNER, group=OWNER, extra_groups=[],
        env=os.environ | {"HOME": "/dev/null"},
    )  # fmt: skip
    assert done.returncode == ExitStatus.WRONG_INPUT, done.stderr
    assert f"{place}: found" in done.stderr


def test_an_own_file_of_a_student_is_read_as_the_student(home: Path) -> None:
    """Code that a run uses; the records of a run that a copy is made of."""
    secret = home.parent / "secret" / "file"
    secret.chmod(0o600)
    work = start(load_lab(LABS / "09-path-selector"), home, "", None)
    (code,) = work.path.glob("*.py")
    code.unlink()
    code.symlink_to(secret)
    for run in work.assignment.directory.lab.runs:
        if not work.assignment.directory.lab.runs[run].code:
            continue
        with pytest.raises(InputError, match="may read"):
            work.assignment.scenario(run)
        with pytest.raises(InputError, match="may read"):
            work.assignment.code_digest(run)
    with pytest.raises(InputError, match=f"{code.name}: .*permission denied"):
        submit(work, home)
    sealed = work.path / "sealed"
    sealed.symlink_to(secret.parent)
    secret.parent.chmod(0o700)
    with pytest.raises(InputError, match="may read"):
        _show(sealed, work.path / "shown", whole=True)


def test_reading_for_a_directory_ends_with_the_block(home: Path) -> None:
    secret = home.parent / "secret" / "file"
    secret.chmod(0o600)
    with acting_for(home):
        with reading_for(home), pytest.raises(PermissionError):
            secret.read_bytes()
        assert secret.read_bytes()
    with reading_for(home.parent):  # root's own
        assert secret.read_bytes()
    with suppress(KeyError), reading_for(home):
        raise KeyError
    assert secret.read_bytes()


def test_it_ends_with_the_block_and_reading_stays_roots(home: Path) -> None:
    secret = home.parent / "secret" / "file"
    secret.chmod(0o600)
    groups = os.getgroups()
    with suppress(KeyError), acting_for(home):
        assert secret.read_text(encoding="utf-8") == "root's"
        with pytest.raises(PermissionError):
            secret.open("a", encoding="utf-8")
        with as_root():
            secret.open("a", encoding="utf-8").close()
        with pytest.raises(PermissionError):
            secret.unlink()
        raise KeyError
    assert os.getgroups() == groups
    secret.open("a", encoding="utf-8").close()


def test_a_process_still_ends_with_its_parent(home: Path) -> None:
    """The kernel forgets that where the rights change."""
    code = (
        "import os, sys, ctypes, pathlib\n"
        "from testbed.rights import acting_for, as_root\n"
        "from testbed.sandbox.system_calls import die_with_parent\n"
        "die_with_parent(os.getppid())\n"
        "number = ctypes.c_int()\n"
        "with acting_for(pathlib.Path(sys.argv[1])), as_root():\n"
        "    ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0)\n"
        "print(number.value)\n"
    )
    told = completed([sys.executable, "-c", code, str(home)], check=True)
    assert int(told.stdout) == signal.SIGKILL
