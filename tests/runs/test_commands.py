"""Figures whose runs are made on a cluster, and campaigns that share a machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import ExitStatus
from testbed.results.run_directory import locked
from testbed.runs.process import EMULATION_LOCK
from tests.commands import completed
from tests.waiting import WATCHDOG_S, wait_until

pytestmark = pytest.mark.long

PLACE = ("--on", "local")


def _figures(directory: Path, *options: str) -> list[dict[str, Any]]:
    """The outcomes of a figure that is simulated in a moment."""
    command = (sys.executable, "-m", "testbed", "figures", "9b", "--form", "simulated", "--json")
    done = completed([*command, "--results", str(directory), *options])
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    outcomes: list[dict[str, Any]] = json.loads(done.stdout)
    return outcomes


@pytest.mark.simulated
def test_figures_on_a_cluster_are_the_same(tmp_path: Path) -> None:
    """And what is there is not made again, on whatever machine."""
    plain = _figures(tmp_path / "plain")
    assert all(check["holds"] for outcome in plain for check in outcome["checks"])
    assert [outcome["checks"] for outcome in _figures(tmp_path / "there", *PLACE)] == [
        outcome["checks"] for outcome in plain
    ]
    made = sorted((tmp_path / "there").rglob("summary.json"))
    _figures(tmp_path / "there", *PLACE)
    assert sorted((tmp_path / "there").rglob("summary.json")) == made


@pytest.mark.root
@pytest.mark.e2e
def test_emulations_in_two_network_namespaces_take_turns(tmp_path: Path) -> None:
    """One that holds the machine's lock here keeps a worker waiting that has its own network."""
    (tmp_path / "tiny.yaml").write_text(
        "name: tiny\ntopology: clos-tiny\nduration: 1 s\n"
        "workload: {pairs: [[h0, h1]], message_size: 16 KiB}\n"
    )
    series = ("run", "tiny.yaml", "--repeat", "2", "--into", "here", "--no-figures", *PLACE)
    in_a_network = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    command = [*in_a_network, sys.executable, "-m", "testbed", *series]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as campaign:
        try:
            with locked(EMULATION_LOCK):
                wait_until(lambda: any(_waits(log) for log in tmp_path.rglob("scenarios/*.log")))
                assert not [*tmp_path.rglob("summary.json")]
            assert campaign.wait(WATCHDOG_S) in (ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED)
            assert (
                len({*tmp_path.glob("here/1-tiny/2*/summary.json")}) >= 2
            )  # made again if not trusted
        finally:
            campaign.terminate()


def _waits(log: Path) -> bool:
    """Whether a run waits for the end of an emulation of another campaign."""
    return "another campaign emulates" in log.read_text()
