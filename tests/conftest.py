"""What all tests share: those marked `root` run where they can, those marked `alone` one at a time.

`make test` gives tests to several processes (xdist). No test depends on how fast this machine is.
But an emulated run whose times a test looks at needs the CPUs for itself: such tests are marked
`alone`, come last, and take turns with all other tests on the machine (tests/turns.py).
"""

import os
import signal
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from testbed import fast
from testbed.limits import simulations_at_once
from testbed.model.errors import MachineError
from tests import turns
from tests.commands import completed
from tests.judging import (  # noqa: F401 - hooks
    pytest_made_again,
    pytest_report_teststatus,
    pytest_runtest_makereport,
    pytest_terminal_summary,
    pytest_unconfigure,
)

COMPUTING = {"device", "e2e", "experiment", "labs", "paper", "sim"}
"""Directories with the files that compute most. They come before the others, so that processes have
done about as much when tests begin to run alone."""

WAITING = {"live", "runs"}
"""Directories with files whose tests wait most of their time, for a browser or for a time to pass.
They are spread over the files that compute, so that the CPUs are busy meanwhile."""

# What a script starts in the background, or with nohup, ignores these, and so would the commands
# that tests send them to.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile("timeless", deadline=None)  # a slow machine is no failure
settings.load_profile("timeless")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--require-root` and `--require-link-model`."""
    parser.addoption(
        "--require-root",
        action="store_true",
        help="stop with an error where tests marked `root` would be skipped",
    )
    parser.addoption(
        "--require-link-model",
        action="store_true",
        help="stop with an error where the link model is not built, or does not load",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test a build of another source, and to skip what must run.

    Raises:
        pytest.UsageError: the core was built, and has been changed since; or tests marked `root`
            would be skipped, but `--require-root` was given; or tests of the link model,
            but `--require-link-model` was.
    """
    try:
        fast.check()
    except MachineError as error:
        raise pytest.UsageError(str(error)) from error
    if config.getoption("--require-root") and (obstacle := _obstacle()) is not None:
        raise pytest.UsageError(f"--require-root: tests marked `root` cannot run: {obstacle}")
    if config.getoption("--require-link-model"):
        from testbed.emulation.fabric.link_model import link_model  # noqa: PLC0415 - NumPy, which few tests need

        if (missing := link_model.missing()) is not None:
            raise pytest.UsageError(f"--require-link-model: {missing}")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes for `-n logical`: as many as this machine grants us, where no test waits.

    For `-n auto` one more, because many tests wait. Each has to collect all tests first.
    """
    return simulations_at_once() + int(config.option.numprocesses == "auto")


def pytest_report_header() -> str:
    """Say what is tested."""
    return f"testbed.mrc: {'as built by make fast' if fast.is_built() else 'as Python'}"


@pytest.hookimpl(trylast=True)  # after `-m` has taken out what is not wanted
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `root` on a machine that cannot run them; put what runs alone last.

    A file goes to one process: those of which some tests run alone come between the others.
    """
    root_items = [item for item in items if item.get_closest_marker("root")]
    obstacle = _obstacle() if root_items else None
    if obstacle is not None:
        for item in root_items:
            item.add_marker(pytest.mark.skip(reason=obstacle))
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    items[:] = [item for path in _in_order(files) for item in sorted(files[path], key=_runs_alone)]


def _in_order(files: Mapping[Path, Sequence[pytest.Item]]) -> list[Path]:
    """The files with tests that run beside others, those with some that run alone, the rest."""
    beside, some, alone = (list[Path]() for _ in range(3))
    for path, items in files.items():
        ways = {*map(_runs_alone, items)}
        (some if len(ways) == 2 else alone if True in ways else beside).append(path)
    waiting = [path for path in beside if _directory(path) in WAITING]
    computing = [path for path in beside if _directory(path) in COMPUTING]
    others = [path for path in beside if _directory(path) not in WAITING | COMPUTING]
    return [*_spread(waiting, computing), *others, *some, *alone]


def _spread(few: Sequence[Path], many: Sequence[Path]) -> list[Path]:
    """The many in their order, with the few among them at equal distances, one of them first."""
    places = [(place / len(few), 0, path) for place, path in enumerate(few)]
    places += [(place / len(many), 1, path) for place, path in enumerate(many)]
    return [path for *_, path in sorted(places)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Have tests that run alone take turns with all others."""
    with turns.alone() if _runs_alone(item) else turns.beside_others():
        return (yield)


def _runs_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def _directory(path: Path) -> str:
    return path.relative_to(Path(__file__).parent).parts[0]


def _obstacle() -> str | None:
    """Return why namespaces cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "needs root: sudo make test"
    tried = completed(["unshare", "--net", "--mount", "--pid", "--fork", "true"])
    if tried.returncode != 0:
        return f"needs namespaces (a container must be privileged): {tried.stderr.strip()}"
    return None


@pytest.fixture
def has_link_model() -> None:
    """Skip the test where the link model is not built, or does not load."""
    from testbed.emulation.fabric.link_model import link_model  # noqa: PLC0415 - NumPy, which few tests need

    if missing := link_model.missing():
        pytest.skip(str(missing))


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that everybody may enter; pytest closes its own whenever a session begins."""
    with TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        yield place
