"""That idle CPUs are kept awake for as long as a run lasts, and where they cannot be."""

import struct
from pathlib import Path

import pytest

from testbed.emulation.experiment import machine
from testbed.emulation.experiment.machine import cpus_awake


def _asked_us(device: Path) -> int:
    """The strictest request of all programs, in us (the device tells it to who reads it)."""
    return int(struct.unpack("=i", device.read_bytes()[:4])[0])


@pytest.mark.root
def test_they_are_kept_awake_until_the_end() -> None:
    with cpus_awake() as cannot:
        if cannot is not None:
            pytest.skip(cannot)
    before = _asked_us(machine.DEVICE)
    if before == 0:
        pytest.skip("another program keeps them awake already")
    with cpus_awake():
        assert _asked_us(machine.DEVICE) == 0
    assert _asked_us(machine.DEVICE) == before


def test_without_the_device_it_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "DEVICE", tmp_path / "cpu_dma_latency")
    with cpus_awake() as cannot:
        assert cannot == f"{tmp_path / 'cpu_dma_latency'}: No such file or directory"
