"""Commands other than series whose runs are made on a cluster: figures and soak."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import ExitStatus
from testbed.results.run_directory import locked
from testbed.runs.turns import EMULATION_LOCK
from tests.waiting import WATCHDOG_S, wait_until

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PLACE = ("--on", "local")


def _figures(directory: Path, *options: str) -> list[dict[str, Any]]:
    """The outcomes of a figure that is simulated in a moment."""
    command = (sys.executable, "-m", "testbed", "figures", "9b", "--simulate", "--json")
    done = subprocess.run(
        [*command, "--results", str(directory), *options],
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
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
    attempts = list((tmp_path / "there").rglob("*.attempts/*.json"))
    assert attempts
    assert [*(tmp_path / "there/paper/workers").iterdir()]
    _figures(tmp_path / "there", *PLACE)
    assert list((tmp_path / "there").rglob("*.attempts/*.json")) == attempts


@pytest.mark.root
@pytest.mark.e2e
def test_a_soak_on_a_cluster_makes_its_scenarios_there(tmp_path: Path) -> None:
    """Trusted or not: the machine may be busy. Its run is emulated, by the worker."""
    command = [sys.executable, str(ROOT / "scripts/soak.py"), str(tmp_path), "incast-queues"]
    done = subprocess.run(
        [*command, "--tries", "1", "--minutes", "0", *PLACE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    soak = json.loads((tmp_path / "soak.json").read_text())
    assert soak["over"], done.stderr
    (part,) = soak["done"]
    assert (part["name"], part["tries"]) == ("incast-queues", 1)
    assert done.returncode == (0 if part["fine"] else 1), done.stderr
    (attempt,) = tmp_path.glob("scenarios/incast-queues-seed-1.attempts/*.json")
    run = tmp_path / json.loads(attempt.read_text())["run"]
    assert not json.loads((run / "manifest.json").read_text()).get("simulated")
    (worker,) = (tmp_path / "workers").iterdir()
    assert json.loads(worker.read_text())["calibration"]


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
