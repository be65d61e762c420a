"""The front door: what `make` offers, and whom what it makes belongs to."""

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import limits
from tests.commands import completed
from tests.waiting import WATCHDOG_S

ROOT = Path(__file__).parents[2]
OWNED = ROOT / "scripts" / "owned.sh"
CALLER = 12345
"""A user id that nobody has: owned.sh wants nothing but the number."""

UNDER_SUDO = {**os.environ, "SUDO_UID": str(CALLER), "SUDO_GID": str(CALLER)}


def make(*arguments: str) -> str:
    """What `make` prints, whatever make itself runs this test; raises where it fails."""
    inherited = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "SCENARIO", "RESULTS", "ARGS"}
    environment = {name: value for name, value in os.environ.items() if name not in inherited}
    command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
    return completed(command, env=environment, check=True).stdout


def test_help_is_the_default_and_lists_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = re.findall(r"^make (\S+) +\S", make(), re.MULTILINE)
    assert sorted(listed) == sorted(targets)
    assert {"run-scenario", "test", "setup"} <= set(listed)


def test_run_scenario_sets_up_first_and_passes_its_variables_on() -> None:
    first, last = make(
        "-n", "run-scenario", "SCENARIO=my file.yaml", "RESULTS=/x/y z", "ARGS=--seed 3"
    ).splitlines()
    assert first.endswith("scripts/setup.sh")
    assert last.endswith('testbed run "my file.yaml" --results "/x/y z" --seed 3')


def test_run_scenario_without_variables_runs_the_link_failure() -> None:
    last = make("-n", "run-scenario").splitlines()[-1]
    assert last.rstrip().endswith('testbed run "link-failure" --results "results"')


@pytest.mark.parametrize(
    ("target", "count", "processes"),
    [("test", "auto", 3), ("test-long", "auto", 3), ("check", "logical", 2)],
)
def test_tests_have_as_many_processes_as_the_machine_grants(
    target: str,
    count: str,
    processes: int,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not one for each of the CPUs that a container sees, but may not use."""
    assert f" -n {count} " in make("-n", target).splitlines()[-1]
    monkeypatch.setattr(pytestconfig.option, "numprocesses", count)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(64))
    monkeypatch.setattr(limits, "available_memory", lambda: 1 << 40)
    monkeypatch.setattr(limits, "cpus", lambda: 2.0)
    assert pytestconfig.hook.pytest_xdist_auto_num_workers(config=pytestconfig) == processes


@pytest.mark.parametrize("script", ["scripts/setup.sh", "scripts/owned.sh", ".ci/run"])
def test_scripts_parse(script: str) -> None:
    subprocess.run(["bash", "-n", script], cwd=ROOT, check=True)
    assert os.access(ROOT / script, os.X_OK)


@pytest.mark.parametrize("environment", [dict(os.environ), UNDER_SUDO])
def test_owned_gives_the_exit_status_of_the_command(
    environment: dict[str, str], tmp_path: Path
) -> None:
    ended = subprocess.run([OWNED, tmp_path, "--", "sh", "-c", "exit 4"], env=environment)  # noqa: PLW1510 - the status is asserted
    assert ended.returncode == 4


@pytest.mark.root
def test_under_sudo_what_is_new_belongs_to_the_caller(tmp_path: Path) -> None:
    mine, new = tmp_path / "mine", tmp_path / "new"
    mine.mkdir()
    os.chown(mine, CALLER, CALLER)
    script = f"mkdir {mine}/a; touch {mine}/a/file; ln -s /etc/passwd {mine}/link; touch {new}/file"
    subprocess.run([OWNED, mine, new, "--", "sh", "-c", script], env=UNDER_SUDO, check=True)
    for made in (mine / "a", mine / "a/file", mine / "link", new, new / "file"):
        assert made.lstat().st_uid == made.lstat().st_gid == CALLER, made
    assert Path("/etc/passwd").stat().st_uid == 0


@pytest.mark.root
def test_under_sudo_a_directory_of_roots_stays_roots(tmp_path: Path) -> None:
    script = f"touch {tmp_path}/file"
    subprocess.run([OWNED, tmp_path, "--", "sh", "-c", script], env=UNDER_SUDO, check=True)
    assert (tmp_path / "file").stat().st_uid == 0


@pytest.mark.root
@pytest.mark.parametrize(
    ("number", "send"),
    [
        pytest.param(signal.SIGINT, os.killpg, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, os.kill, id="TERM"),
        pytest.param(signal.SIGTERM, os.killpg, id="TERM to all"),
    ],
)
def test_under_sudo_a_signal_stops_the_command_in_order(
    number: signal.Signals, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    os.chown(tmp_path, CALLER, CALLER)
    stop = f"sleep 0.1; echo stopped > {tmp_path}/said; kill $!; exit 7"
    script = f"trap '{stop}' INT TERM; sleep 10 & echo up; wait"
    with subprocess.Popen(
        [OWNED, tmp_path, "--", "sh", "-c", script],
        env=UNDER_SUDO,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        send(running.pid, number)
        assert running.wait(timeout=WATCHDOG_S) != 0
    assert (tmp_path / "said").stat().st_uid == CALLER


def test_the_environment_names_its_checkout_by_a_relative_path() -> None:
    """With LC_ALL=C, Python 3.11 reads no other letters than ASCII there, and would not start."""
    links = [*ROOT.glob(".venv/lib/python*/site-packages/_editable_impl_mrc_testbed.pth")]
    if not links:
        pytest.skip("no .venv that make setup has made")
    assert [link.read_text() for link in links] == ["../../../..\n"]
