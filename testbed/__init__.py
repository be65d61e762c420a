"""MRC over SRv6 on an emulated multi-plane Clos fabric: build it, break it, measure it.

    import testbed

    result = testbed.simulate("link-failure")
    result.verdict, result.metrics, result.figures

The names in `__all__` are the interface for programs and notebooks (docs/python.md). They are
loaded when they are first used; what else modules of this package have may change at any time.
"""

import os
import sys

TYPE_CHECKING = False  # without `typing`: see `__main__.leave_current_directory`
if TYPE_CHECKING:
    from typing import Any

    from testbed.model.errors import InputError, MachineError, RunFailedError, TestbedError
    from testbed.model.fabric.topology import Topology
    from testbed.model.scenario import Scenario
    from testbed.model.summary import Summary
    from testbed.runs.python import (
        Case,
        Sweep,
        changed,
        emulate,
        load_result,
        load_scenario,
        load_topology,
        scenario,
        simulate,
        sweep,
        topology,
    )
    from testbed.runs.result import Figure, Figures, Result
    from testbed.studies.study.study import Study, study

    __version__: str

_PLACES = {
    "testbed.runs.result": ("Figure", "Figures", "Result"),
    "testbed.runs.python": (
        "Case",
        "Sweep",
        "changed",
        "emulate",
        "load_result",
        "load_scenario",
        "load_topology",
        "scenario",
        "simulate",
        "sweep",
        "topology",
    ),
    "testbed.studies.study.study": ("Study", "study"),
    "testbed.model.errors": ("InputError", "MachineError", "RunFailedError", "TestbedError"),
    "testbed.model.fabric.topology": ("Topology",),
    "testbed.model.scenario": ("Scenario",),
    "testbed.model.summary": ("Summary",),
}

_VERSION = "__version__"

forked_after = set[str]()
"""Libraries with threads of their own that were loaded before this process was forked."""

if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=lambda: forked_after.update({"polars"} & sys.modules.keys()))

__all__ = [
    "Case",
    "Figure",
    "Figures",
    "InputError",
    "MachineError",
    "Result",
    "RunFailedError",
    "Scenario",
    "Study",
    "Summary",
    "Sweep",
    "TestbedError",
    "Topology",
    "__version__",
    "changed",
    "emulate",
    "load_result",
    "load_scenario",
    "load_topology",
    "scenario",
    "simulate",
    "study",
    "sweep",
    "topology",
]


def __getattr__(name: str) -> "Any":
    """Load a name of the interface when it is first used."""
    if name == _VERSION:
        from importlib.metadata import version  # noqa: PLC0415 - it takes longer than all else here

        return version("mrc-testbed")
    from importlib import import_module  # noqa: PLC0415 - as `typing`

    for module, names in _PLACES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
