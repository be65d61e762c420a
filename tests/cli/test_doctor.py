"""What is missing is found by trying, and named with a remedy; status 3 if it is required."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.fabric import link_model, namespaces, tun
from testbed.model.errors import ExitStatus
from tests.sandbox import run_in_sandbox

pytestmark = pytest.mark.patient

TESTBED = Path(sys.executable).with_name("testbed")
NOBODY = 65534


def _doctor() -> tuple[int, dict[str, dict[str, Any]], bool]:
    done = subprocess.run(
        [TESTBED, "doctor", "--json"], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    return done.returncode, {one["name"]: one for one in answer["findings"]}, answer["able"]


def _hidden(*files: str) -> tuple[int, dict[str, dict[str, Any]], bool]:
    """Ask the doctor where these files cannot be seen."""

    def look() -> tuple[int, dict[str, dict[str, Any]], bool]:
        for file in files:
            namespaces.mount("/dev/null", file, "", namespaces.MS_BIND)
        return _doctor()

    return run_in_sandbox(look)


@pytest.mark.root
def test_this_machine_is_able_and_every_gap_has_a_remedy() -> None:
    status, found, able = _doctor()
    assert (status, able) == (0, True)
    assert all(one["ok"] for one in found.values() if one["required"])
    for one in found.values():
        assert one["needed_for"]
        assert one["ok"] != bool(one["remedy"]), one
    kernel = {"root", "HTB", "Ryu", "End.DT6", "cls_bpf", "netem", "MPTCP"}
    assert kernel | {"clock", "timers"} <= set(found)
    assert not found["netem"]["required"]
    assert found["netem"]["needed_for"].startswith("nothing")
    assert "tcpdump" not in found, "captures use a ring of our own"


@pytest.mark.root
def test_without_open_vswitch_and_tools_runs_are_possible_and_it_says_what_is_lost() -> None:
    hidden = ("clang", "ovs-vswitchd", "ping")
    status, found, able = _hidden(*(place for name in hidden if (place := shutil.which(name))))
    assert (status, able) == (0, True)
    for datapath in ("kernel", "user-space"):
        one = found[f"Open vSwitch, {datapath} datapath"]
        assert not one["ok"]
        assert "no ovs-vswitchd" in one["detail"]
        assert "openvswitch" in one["remedy"]
    assert not found["clang"]["ok"]
    assert "install clang" in found["clang"]["remedy"]
    assert not found["ping"]["ok"]
    assert "iputils-ping" in found["ping"]["remedy"]
    assert found["cls_bpf"]["ok"]
    assert found["link model"]["ok"] or not link_model.OBJECT.exists(), "clang only builds it"


@pytest.mark.root
@pytest.mark.parametrize(
    ("program", "missing"),
    [
        ("clang", {"clang"}),
        ("ovs-vswitchd", {f"Open vSwitch, {one} datapath" for one in ("kernel", "user-space")}),
    ],
)
def test_one_program_that_is_not_there_takes_nothing_else_with_it(
    program: str, missing: set[str]
) -> None:
    """What is missing beside it was missing before."""
    place = shutil.which(program)
    if place is None:
        pytest.skip(f"{program} is not installed")
    before = {name for name, one in _doctor()[1].items() if not one["ok"]}
    status, found, able = _hidden(place)
    assert (status, able) == (0, True)
    now = {name for name, one in found.items() if not one["ok"]}
    assert now - {"timers", "memory"} == (before | missing) - {"timers", "memory"}


@pytest.mark.root
def test_without_tun_devices_it_says_which_traffic_has_no_delay() -> None:
    status, found, able = _hidden(tun.DEVICE)
    assert (status, able) == (0, True)
    assert not found["TUN devices"]["ok"]
    assert "propagation delay of ordinary traffic" in found["TUN devices"]["needed_for"]
    assert "modprobe tun" in found["TUN devices"]["remedy"]


@pytest.mark.root
@pytest.mark.skipif(not link_model.OBJECT.exists(), reason="it is not built here anyway")
def test_without_the_link_model_it_says_what_is_lost_and_how_to_build_it() -> None:
    status, found, able = _hidden(str(link_model.OBJECT))
    assert (status, able) == (0, True)
    assert not found["link model"]["ok"]
    assert "ECN" in found["link model"]["needed_for"]
    assert "make setup" in found["link model"]["remedy"]


@pytest.mark.root
def test_without_the_library_that_loads_bpf_it_says_so() -> None:
    libraries = [str(one) for one in Path("/usr/lib").rglob("libbpf.so.1*") if not one.is_symlink()]
    if not libraries:
        pytest.skip("libbpf is not installed as a system library")
    status, found, _ = _hidden(*libraries)
    assert status == 0
    assert not found["libbpf"]["ok"]
    assert "libbpf" in found["libbpf"]["remedy"]


@pytest.mark.root
def test_nobody_is_told_that_root_is_needed() -> None:
    """In a process that has given up root: what can be told without it is told."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            from testbed.experiment.diagnosis import diagnose  # noqa: PLC0415 - while still root

            os.setgid(NOBODY)
            os.setuid(NOBODY)
            found = {one.name: (one.ok, one.required, one.detail) for one in diagnose()}
            os.write(writer, json.dumps(found).encode())
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert ended == 0
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = json.load(pipe)
    assert found["root"] == [False, True, "namespaces need it"]
    for name in ("HTB", "Ryu", "Open vSwitch, user-space datapath"):
        ok, _, detail = found[name]
        assert not ok
        assert detail == "not tried: it needs root"
    assert found["cores"][0] is not None
    assert found["clock"][0]


@pytest.mark.root
def test_nobody_is_shown_what_is_missing_and_the_status_says_it() -> None:
    """The text form, as somebody who forgot sudo sees it."""
    closed = [one for one in TESTBED.resolve().parents if not one.stat().st_mode & stat.S_IXOTH]
    if closed:
        pytest.skip(f"{closed[0]} is closed to others")
    done = subprocess.run(
        [TESTBED, "doctor"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "120", "NO_COLOR": "1"},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    assert done.returncode == ExitStatus.MACHINE_CANNOT, done.stderr
    lines = done.stdout.splitlines()
    assert "MISSING" in next(line for line in lines if " root " in line)
    assert "root: needed for every run" in done.stdout
    assert "remedy: run as root, such as with sudo" in done.stdout
    assert lines[-1] == "this machine cannot run it yet"
