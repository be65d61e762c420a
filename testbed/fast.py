"""What `make fast` builds as C, whether it has, and whether the build is still of its source.

mypyc compiles the very files; Python prefers what it makes of them, beside them.
"""

from pathlib import Path

from testbed.model.errors import MachineError

_PACKAGE = Path(__file__).parent
_AROUND_THE_CORE = (
    "endpoint/carriers",
    "endpoint/mmsg",
    "endpoint/nic",
    "endpoint/sockets",
    "host/port_scheduler",
    "host/rounds",
    "host/traffic",
    "sim/engine",
    "sim/host",
    "sim/link",
    "sim/packet",
    "sim/wire",
)
"""What every packet goes through beside the core: in the endpoint, and at each simulated hop."""


def sources() -> list[Path]:
    """The modules to build: the protocol core, the endpoint around it, the simulator's links.

    The packages themselves stay Python: built, they would not find a module that is not.
    """
    core = sorted(path for path in _PACKAGE.glob("mrc/**/*.py") if path.name != "__init__.py")
    return core + [_PACKAGE / f"{module}.py" for module in _AROUND_THE_CORE]


def _built() -> list[Path]:
    return [file for path in sources() for file in path.parent.glob(f"{path.stem}.*.so")]


def is_built() -> bool:
    """Whether the core runs as C."""
    return bool(_built())


def check() -> None:
    """Check that a build is whole, and as new as its source.

    Raises:
        MachineError: the source has changed since.
    """
    built = [file.stat().st_mtime for file in _built()]
    source = [path.stat().st_mtime for path in sources()]
    if built and (len(built) < len(source) or min(built) < max(source)):
        raise MachineError(
            "the fast build is older than its source",
            "make fast builds it again, make slow removes it",
        )
