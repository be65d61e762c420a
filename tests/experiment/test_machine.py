"""What is written of the machine while a run lasts."""

import json
from pathlib import Path

import pytest

from testbed.emulation.experiment import machine
from testbed.emulation.experiment.machine import INTERVAL_NS, MachineSampler


def test_drops_are_counted_from_the_beginning_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the first second too, and none of before."""
    softnet = [40]
    monkeypatch.setattr(machine, "softnet_drops", lambda: softnet[0])
    sampler = MachineSampler(tmp_path / "health.jsonl", 0, {"openvswitch": 5})
    softnet[0] = 43
    sampler.sample(INTERVAL_NS, {"openvswitch": 5}, {})
    sampler.sample(2 * INTERVAL_NS, {"openvswitch": 7}, {})
    lines = (tmp_path / "health.jsonl").read_text().splitlines()
    assert [json.loads(line)["drops"] for line in lines] == [
        {"softnet": 3, "openvswitch": 0},
        {"softnet": 3, "openvswitch": 2},
    ]


def test_programs_of_low_priority_leave_headroom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    ticks = iter([[0] * 8, [30, 50, 10, 5, 0, 0, 5, 0]])
    monkeypatch.setattr(machine, "cpu_ticks", lambda: {"cpu": next(ticks)})
    sampler = MachineSampler(tmp_path / "health.jsonl", 0, {})
    sampler.sample(INTERVAL_NS, {}, {})
    (sample,) = map(json.loads, (tmp_path / "health.jsonl").read_text().splitlines())
    assert (sample["busy_share"], sample["softirq_share"]) == (0.45, 0.05)
