"""The simulator needs neither root nor a kernel, and its speed can be measured."""

import sys
from pathlib import Path

from testbed.model.files.scenarios import load_scenario
from testbed.studies.bench.cost import speeds
from testbed.studies.bench.measure import Setting
from tests.commands import completed

_LOAD_ALL = """
import importlib, pkgutil, sys, testbed.mapper, testbed.sim

for package in testbed.mapper, testbed.sim:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.ispkg:
            importlib.import_module(module.name)
print(*sys.modules)
"""


def test_it_loads_nothing_that_needs_root_or_a_kernel() -> None:
    done = completed([sys.executable, "-c", _LOAD_ALL], check=True)
    loaded = done.stdout.split()
    assert {"testbed.sim.run", "testbed.mapper.clustermapper"} <= set(loaded)
    linux_only = ("testbed.emulation",)
    for name in (*linux_only, "pyroute2", "fcntl", "ryu"):
        assert name not in loaded


def test_its_speed_is_measured(tmp_path: Path) -> None:
    scenario = load_scenario("link-failure").model_copy(
        update={"duration": 300_000_000, "timeline": ()}
    )
    figures = speeds(scenario, Setting(1, tmp_path, lambda _: None))
    assert [figure.name for figure in figures] == [
        "link-failure simulated, not recorded",
        "link-failure simulated, recorded",
    ]
    assert all(figure.samples[0] > 0 for figure in figures)
