"""What is missing is found by trying, and named with a remedy; status 3 if it is required."""

import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.experiment.diagnosis import apt_command
from testbed.emulation.fabric.capabilities import RequirementResult
from testbed.emulation.fabric.interfaces import TUN_DEVICE
from testbed.emulation.fabric.link_model import link_model
from testbed.sandbox import namespaces
from testbed.sandbox.processes import call
from tests.commands import TESTBED, completed
from tests.sandbox import run_in_sandbox

pytestmark = pytest.mark.programs

NOBODY = 65534
SIMULATES = "only simulate: it lacks something that every run needs"


def _doctor() -> tuple[int, dict[str, dict[str, Any]], bool]:
    done = completed([TESTBED, "doctor", "--json"])
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    return (
        done.returncode,
        {result["name"]: result for result in answer["findings"]},
        answer["able"],
    )


def _hidden(*files: str) -> tuple[int, dict[str, dict[str, Any]], bool]:
    """Ask the doctor where these files cannot be seen."""

    def look() -> tuple[int, dict[str, dict[str, Any]], bool]:
        for file in files:
            namespaces.mount("/dev/null", file, "", namespaces.MS_BIND)
        return _doctor()

    return run_in_sandbox(look)


@pytest.fixture(scope="module")
def here() -> tuple[int, dict[str, dict[str, Any]], bool]:
    """What the doctor says of this machine as it is."""
    return _doctor()


@pytest.mark.root
def test_this_machine_is_able_and_every_gap_has_a_remedy(
    here: tuple[int, dict[str, dict[str, Any]], bool],
) -> None:
    status, found, able = here
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


def _place(name: str) -> list[str]:
    place = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return [] if place is None else [place]


BUILT = [str(link_model.OBJECT)] if link_model.OBJECT.exists() else []
NO_SWITCH = {"detail": "no ovs-vswitchd", "remedy": "openvswitch"}
NO_MODEL = {"needed_for": "ECN", "remedy": "make setup"}


@pytest.mark.root
@pytest.mark.parametrize(
    ("hidden", "missing"),
    [
        (
            _place("ovs-vswitchd"),
            {f"Open vSwitch, {one} datapath": NO_SWITCH for one in ("kernel", "user-space")},
        ),
        (
            [*_place("ping"), TUN_DEVICE],
            {
                "ping": {"remedy": "iputils-ping"},
                "Open vSwitch, user-space datapath": {
                    "needed_for": "faults through OpenFlow",
                    "remedy": f"in a container, start it with --device {TUN_DEVICE}",
                },
                "TUN devices": {
                    "needed_for": "propagation delay of ordinary traffic",
                    "remedy": f"mknod {TUN_DEVICE}",
                },
            },
        ),
        (BUILT, {"link model": NO_MODEL}),
    ],
    ids=["Open vSwitch", "ping and TUN devices", "the link model"],
)
def test_what_is_hidden_is_missing_with_a_remedy_and_takes_nothing_else_with_it(
    here: tuple[int, dict[str, dict[str, Any]], bool],
    hidden: list[str],
    missing: dict[str, dict[str, str]],
) -> None:
    """Runs are possible all the same; what is missing beside it was missing before."""
    if not hidden:
        pytest.skip("it is not installed here anyway")
    status, found, able = _hidden(*hidden)
    assert (status, able) == (0, True)
    for name, words in missing.items():
        assert not found[name]["ok"]
        for key, message in words.items():
            assert message in found[name][key]
    before, now = ({name for name, one in of.items() if not one["ok"]} for of in (here[1], found))
    assert now - before - {"timers", "memory"} == set(missing) - before
    assert before - now <= {"timers", "memory"}


@pytest.mark.root
def test_without_the_library_that_loads_bpf_it_says_so() -> None:
    """And of whatever else is linked with it: Debian's Open vSwitch is."""
    libraries = [
        str(file) for file in Path("/usr/lib").rglob("libbpf.so.1*") if not file.is_symlink()
    ]
    if not libraries:
        pytest.skip("libbpf is not installed as a system library")
    status, found, _ = _hidden(*libraries)
    assert status == 0
    assert not found["libbpf"]["ok"]
    assert "libbpf" in found["libbpf"]["remedy"]
    assert not found["link model"]["ok"]


@pytest.mark.root
def test_nobody_is_told_that_root_is_needed() -> None:
    """In a process that has given up root: what can be told without it is told."""

    def look() -> dict[str, tuple[bool, bool, str]]:
        from testbed.emulation.experiment.diagnosis import diagnose  # noqa: PLC0415 - while still root

        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return {
            finding.name: (finding.ok, finding.required, finding.detail) for finding in diagnose()
        }

    found = call(look, isolated=False)
    assert found["root"] == (False, True, "namespaces need it")
    for name in ("HTB", "Ryu", "Open vSwitch, user-space datapath"):
        ok, _, detail = found[name]
        assert not ok
        assert detail == "not tried: it needs root"
    assert found["cores"][0] is not None
    assert found["clock"][0]


def test_for_ci_it_prints_a_markdown_table_and_ends_as_ever() -> None:
    """A row for each capability; a bar in what was found does not end a cell."""
    done = completed([TESTBED, "doctor", "--ci"])
    status, found, able = _doctor()
    assert done.returncode == status
    heading, _, *rows = done.stdout.splitlines()
    assert heading == f"### This machine can {'emulate fabrics' if able else SIMULATES}"
    cells = [re.split(r"(?<!\\)\|", row) for row in rows if row]
    assert {len(row) for row in cells} == {6}
    assert [row[1].strip() for row in cells[2:]] == list(found)


@pytest.mark.root
def test_without_root_it_says_what_works_and_how_to_find_out_the_rest() -> None:
    """The text form, as somebody who forgot sudo sees it."""
    closed = [
        parent for parent in TESTBED.resolve().parents if not parent.stat().st_mode & stat.S_IXOTH
    ]
    if closed:
        pytest.skip(f"{closed[0]} is closed to others")
    done = completed(
        [TESTBED, "doctor"],
        env=os.environ | {"COLUMNS": "120", "NO_COLOR": "1"},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "without root, this works here:"
    assert lines[-1].endswith(f"as root: sudo {TESTBED.resolve()} doctor")
    assert "MISSING" not in done.stdout


def test_one_line_installs_all_packages_that_are_missing() -> None:
    remedies = {
        "libbpf": "apt install libbpf1, or dnf install libbpf",
        "Open vSwitch, kernel datapath": "apt install openvswitch-switch (its service)",
        "Open vSwitch, user-space datapath": "apt install openvswitch-switch (again)",
        "netem": "modprobe sch_netem, or install linux-modules-extra",
        "ping": "",
    }
    results = [
        RequirementResult(name, not remedy, "", "", remedy, required=False)
        for name, remedy in remedies.items()
    ]
    assert apt_command(results).endswith(" --no-install-recommends libbpf1 openvswitch-switch")
    assert apt_command(results[3:]) == ""
