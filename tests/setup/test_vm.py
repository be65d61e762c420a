"""What `make test-vm` makes of what a virtual machine reports."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts/vm"
PASSED = {"doctor": 0, "tests": 0, "host": 0, "link-failure": 0, "without-ipv6": 0}


@pytest.fixture
def test_vm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.delitem(sys.modules, "test_vm", raising=False)
    return import_module("test_vm")


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        (PASSED, 0),
        (PASSED | {"host": 1}, 1),
        ({"doctor": 0, "tests": 0}, 1),  # the machine did not get further
        ({}, 1),  # it did not boot
        ({"command": 0}, 0),
    ],
)
def test_only_a_machine_that_did_all_and_passed_all_has_passed(
    test_vm: ModuleType, tmp_path: Path, steps: dict[str, int], status: int
) -> None:
    lines = [
        json.dumps({"name": name, "status": ended, "seconds": 1}) for name, ended in steps.items()
    ]
    (tmp_path / "steps.jsonl").write_text("\n".join(lines))
    assert test_vm.report("debian13-amd64", tmp_path, 60.0, 50.0, accelerated=False) == status


def test_the_last_steps_are_those_of_the_guest(test_vm: ModuleType) -> None:
    guest = (SCRIPTS / "guest.sh").read_text()
    assert all(f"step {name} " in guest for name in {*PASSED, *test_vm.LAST_STEPS})
