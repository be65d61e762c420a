"""What the machine lacks is named, with a remedy."""

import os

import pytest

from testbed.emulation.fabric import capabilities
from testbed.emulation.fabric.capabilities import KernelCapabilities, Requirement
from testbed.model.errors import ExitStatus, MachineError

pytestmark = pytest.mark.kernel


@pytest.mark.root
def test_this_machine_can_build_a_fabric() -> None:
    """Where the other tests run, nothing is missing."""
    capabilities.require()


@pytest.mark.root
def test_what_fails_is_reported_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """By trying: what the kernel refuses is missing."""

    def refuse() -> None:
        raise OSError("Operation not supported")

    requirements = (
        Requirement("wings", "grow some", refuse),
        Requirement("later", "", lambda: None),
    )
    monkeypatch.setattr(KernelCapabilities, "required", lambda _: requirements)
    with pytest.raises(MachineError) as failure:
        capabilities.require()
    assert str(failure.value) == "wings: Operation not supported\n  remedy: grow some"
    assert failure.value.exit_status is ExitStatus.MACHINE_CANNOT


def test_without_root_the_remedy_is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is tried."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError) as failure:
        capabilities.require()
    assert "root" in failure.value.remedy
