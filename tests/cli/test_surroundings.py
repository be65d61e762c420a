"""Whatever a shell, a file system or a locale gives a command: it works, or says what is wrong."""

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from testbed.cli import main
from testbed.cli.options import require_labels
from testbed.model.errors import ExitStatus, InputError
from testbed.results.run_directory import find_run, runs
from tests.commands import completed

TESTBED = shlex.quote(str(Path(sys.executable).with_name("testbed")))
NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups"
SCENARIO = """\
name: umlaut
description: "Stromausfall für 3 s → 漢"
topology: clos-tiny
duration: 30 RTT
workload: {kind: permutation}
expect: {run: {bytes_lost: 0}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a scenario."""
    (tmp_path / "umlaut.yaml").write_text(SCENARIO, encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def shell(here: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in bash; `testbed` is ours."""
    return subprocess.run(
        ["bash", "-c", f'testbed() {{ {TESTBED} "$@"; }}\n{script}'],
        cwd=here,
        env=os.environ | environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


@pytest.mark.parametrize("command", ["list", "--help", "list --json", "validate umlaut.yaml"])
def test_a_full_standard_output_is_named(here: Path, command: str) -> None:
    done = shell(here, f"testbed {command} >/dev/full")
    assert done.returncode == ExitStatus.MACHINE_CANNOT
    expected = "error: standard output cannot be written to: No space left on device\n"
    assert done.stderr.endswith(expected)


@pytest.mark.simulated
@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_stream_that_is_closed_or_not_needed_ends_nothing(here: Path, streams: str) -> None:
    done = shell(here, f"testbed simulate umlaut.yaml --no-figures {streams}")
    assert done.returncode == ExitStatus.AS_EXPECTED
    assert find_run(here / "results/umlaut").finished


def test_a_working_directory_that_is_gone_is_named(here: Path) -> None:
    done = shell(here, "mkdir gone && cd gone && rmdir ../gone && testbed list")
    assert done.returncode == ExitStatus.WRONG_INPUT
    assert "working directory: found no such file or directory" in done.stderr


def test_bytes_that_are_no_text_are_named(here: Path) -> None:
    done = shell(here, "testbed simulate umlaut.yaml --results $'r\\xff'")
    assert done.returncode == ExitStatus.WRONG_INPUT
    assert done.stderr == "error: command line: found r\\xff, expected text in UTF-8\n"
    done = shell(here, "mkdir $'d\\xff' && cd $'d\\xff' && testbed simulate ../umlaut.yaml")
    assert done.returncode == ExitStatus.WRONG_INPUT
    assert "--results: found results, expected a path in UTF-8" in done.stderr


@pytest.mark.simulated
def test_a_pipe_is_read_once(here: Path) -> None:
    done = shell(here, "testbed validate <(cat umlaut.yaml)")
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    assert "a valid scenario" in done.stdout
    command = "testbed simulate <(cat umlaut.yaml) --no-figures --sweep seed=1,2"
    assert shell(here, command).returncode == ExitStatus.AS_EXPECTED
    done = shell(here, "testbed validate /dev/zero")
    assert done.returncode == ExitStatus.WRONG_INPUT
    assert "found more than 16777216 bytes that are no file" in done.stderr


@pytest.mark.simulated
def test_another_encoding_than_utf_8(here: Path) -> None:
    made = shell(here, "localedef -i de_DE -f ISO-8859-1 ./de_iso")
    if made.returncode:
        pytest.skip("no localedef with de_DE and ISO-8859-1: apt install locales")
    german = {"LOCPATH": str(here), "LC_ALL": "de_iso"}
    simulate = "testbed simulate umlaut.yaml --results R\u00fc"
    done = shell(here, f"{simulate} --repeat 2 --json --no-figures", **german)
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    series = Path(json.loads(done.stdout)["series"])
    assert (here / os.fsdecode(os.fsencode("Rü")) / "umlaut" / series.name).is_dir()
    study = "name: x\nscenarios: {Größe 漢: umlaut.yaml}\ncases: {漢: {}}\nseeds: 1\n"
    (here / "study.yaml").write_text(f"{study}metrics: [flows.ideal_fraction]\n", encoding="utf-8")
    done = shell(here, "testbed study study.yaml", **german)
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    done = shell(here, "testbed validate umlaut.yaml", **german)
    assert (done.returncode, "a valid scenario" in done.stdout) == (ExitStatus.AS_EXPECTED, True)


@pytest.mark.simulated
def test_in_a_user_namespace_the_callers_ids_may_be_unknown(here: Path) -> None:
    if shell(here, "unshare -Ur true").returncode:
        pytest.skip("this system lets its users make no user namespaces")
    command = f"unshare -Ur env SUDO_UID=1000 SUDO_GID=1000 {TESTBED} simulate umlaut.yaml"
    done = shell(here, f"{command} --no-figures")
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    assert runs(here / "results")[0].finished


@pytest.mark.root
@pytest.mark.parametrize(
    "command",
    ["report {}/results", "replay {}/results --stream -", "compare {0}/a {0}/b", "validate {}/x"],
)
def test_a_directory_that_only_others_may_enter_is_named(here: Path, command: str) -> None:
    here.parent.chmod(0o700)
    nobody = f"{NOBODY} {TESTBED}"
    done = shell(here, f"cd / && {nobody} {command.format(here)}")
    assert done.returncode == ExitStatus.WRONG_INPUT
    assert "found permission denied, expected a path that may be entered" in done.stderr
    assert f"error: {here}" in done.stderr


@pytest.mark.root
@pytest.mark.parametrize(
    "command", ["lab check", "lab submit", "topo clos-tiny -o /dev/null/x.svg"]
)
def test_a_working_directory_in_a_place_of_others_is_named(here: Path, command: str) -> None:
    """It can be entered before rights are given up; its whole path is closed then."""
    here.chmod(0o777)
    here.parent.chmod(0o700)
    done = shell(here, f"exec {NOBODY} {TESTBED} {command}", HOME="/dev/null")
    assert done.returncode == ExitStatus.WRONG_INPUT, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["topo clos-tiny -o x.svg", "lab grade x.zip"])
def test_a_machine_without_a_place_for_temporary_files_is_named(here: Path, command: str) -> None:
    """As a container whose file systems are read-only, but for the results."""
    (here / "x.zip").touch()
    code = (
        "import sys, tempfile\n"
        "tempfile._candidate_tempdir_list = lambda: ['/dev/null']\n"
        "sys.argv = ['testbed', *sys.argv[1:]]\n"
        "from testbed.__main__ import main\n"
        "main()\n"
    )
    done = completed(
        [sys.executable, "-P", "-c", code, *command.split()],
        cwd=here,
        env={"PATH": os.environ["PATH"], "HOME": "/dev/null"},
    )
    assert done.returncode == ExitStatus.MACHINE_CANNOT, done.stderr
    assert "TMPDIR=DIR" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (PermissionError(errno.EACCES, "no", "/a/file"), 3, "/a/file: no"),
        (PermissionError(errno.EACCES, "no", "file"), 2, "found no, expected a path that may be"),
        (OSError(errno.ENOSPC, "full"), 3, "error: full\n  remedy: free some"),
        (OSError(errno.EROFS, "kept", "x"), 3, "x: kept"),
        (OSError(errno.EMFILE, "many", "x"), 3, "ulimit -n"),
        (MemoryError(), 3, "memory ran out"),
        (FileNotFoundError(errno.ENOENT, "gone", "x"), 5, "Traceback"),
        (PermissionError(errno.EPERM, "no"), 5, "Traceback"),
    ],
    ids=repr,
)
def test_what_the_system_refuses_is_no_crash(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    status: int,
    said: str,
) -> None:
    def fail() -> NoReturn:
        raise error

    monkeypatch.chdir(here)
    monkeypatch.setattr("sys.argv", ["testbed", "list"])
    monkeypatch.setattr("testbed.cli.command_line", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    assert said in capsys.readouterr().err


@pytest.mark.root
def test_a_run_that_only_others_may_change_can_be_looked_at(here: Path, open_place: Path) -> None:
    assert shell(here, "testbed simulate umlaut.yaml --no-figures").returncode == 0
    run = runs(here / "results")[0].path
    run = Path(shutil.copytree(run, open_place / run.name))
    here = open_place
    (here / "fonts").mkdir()
    (here / "fonts").chmod(0o777)
    nobody = f"env MPLCONFIGDIR={here}/fonts {NOBODY} {TESTBED}"
    done = shell(here, f"cd / && {nobody} report {run}")
    assert done.returncode == ExitStatus.WRONG_INPUT
    assert f"RUN: found {run}, expected a directory to write to (permission denied)" in done.stderr
    done = shell(here, f"cd / && {nobody} replay {run} --stream {here}/fonts/stream")
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    first = (here / "fonts/stream").read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(first)["scenario"] == "umlaut"
    shown = here / "fonts/shown"
    until_shown = f"until grep -q Ctrl-C {shown}; do kill -0 $! || break; sleep 0.1; done"
    script = f"{nobody} replay {run} 2>{shown} & {until_shown}; kill -INT $!; wait $!"
    assert shell(here, f"set -m; cd / && touch {shown}; {script}").returncode == os.EX_OK
    text = shown.read_text(encoding="utf-8")
    assert "Replay: http://127.0.0.1:" in text
    assert "Errno" not in text


def test_a_terminal_without_columns_still_shows_what_is_wrong(here: Path) -> None:
    done = shell(here, "testbed simulate ./none.yaml", COLUMNS="0")
    assert done.returncode == ExitStatus.WRONG_INPUT
    assert "none.yaml" in done.stderr


@pytest.mark.parametrize("labels", [["x", "x"], ["x"]])
def test_wrong_labels_have_a_remedy(labels: list[str]) -> None:
    with pytest.raises(InputError, match="remedy: give"):
        require_labels(labels, 2, "runs")
