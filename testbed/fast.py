"""The C build of `make fast`: its source files, whether it exists and whether it is up to date.

mypyc compiles the Python files unchanged; Python prefers the libraries that it puts beside them.
"""

from collections import defaultdict
from pathlib import Path

from testbed.model.errors import MachineError

_PACKAGE = Path(__file__).parent
_AROUND_THE_CORE = (
    "device/process_memory",
    "host/roce/wire",
    "emulation/endpoint/nic",
    "emulation/endpoint/sockets",
    "host/qp_records",
    "host/rounds",
    "host/traffic",
    "sim/engine",
    "sim/host",
    "sim/link",
)
"""Modules outside the core that handle each packet: of the endpoint, and of the simulator.

RoCE's packets, the regions of programs and the NIC without an outer header are here for their base
classes: Python classes cannot inherit from compiled ones.
"""


def sources() -> list[Path]:
    """The modules to build: the protocol core, and what handles packets in endpoint and simulator.

    `__init__.py` files stay Python: a compiled package does not find modules that are not compiled.
    """
    core = sorted(path for path in _PACKAGE.glob("mrc/**/*.py") if path.name != "__init__.py")
    return core + [_PACKAGE / f"{module}.py" for module in _AROUND_THE_CORE]


def _built() -> list[Path]:
    built = _libraries()
    return [file for path in sources() for file in built.get(path.with_suffix(""), ())]


def _libraries() -> dict[Path, list[Path]]:
    """The libraries beside the sources, by the path of their module without its suffix."""
    libraries = defaultdict[Path, list[Path]](list)
    for directory in {path.parent for path in sources()}:
        for file in directory.glob("*.so"):
            libraries[directory / file.name.partition(".")[0]].append(file)
    return libraries


def is_built() -> bool:
    """Whether there is a C build, which then runs."""
    return bool(_built())


def check() -> None:
    """Check that a build is complete and as new as its source.

    Raises:
        MachineError: it is not.
    """
    built = [file.stat().st_mtime for file in _built()]
    source = [path.stat().st_mtime for path in sources()]
    if built and (len(built) < len(source) or min(built) < max(source)):
        raise MachineError(
            "the fast build is older than its source",
            "run make fast to build it again, or make slow to remove it",
        )
