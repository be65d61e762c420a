"""What all tests share: tests marked `root` run where they can, and are skipped with the reason."""

import os
import subprocess

import pytest

from testbed import fast
from testbed.model.errors import MachineError


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--require-root`."""
    parser.addoption(
        "--require-root",
        action="store_true",
        help="stop with an error where tests marked `root` would be skipped",
    )


def pytest_configure() -> None:
    """Refuse to test a build of another source.

    Raises:
        pytest.UsageError: the core was built, and has been changed since.
    """
    try:
        fast.check()
    except MachineError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header() -> str:
    """Say what is tested."""
    return f"testbed.mrc: {'as built by make fast' if fast.is_built() else 'as Python'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests marked `root` on a machine that cannot run them.

    Raises:
        pytest.UsageError: they would be skipped, but `--require-root` was given.
    """
    root_items = [item for item in items if item.get_closest_marker("root")]
    if not root_items:
        return
    obstacle = _obstacle()
    if obstacle is None:
        return
    if config.getoption("--require-root"):
        raise pytest.UsageError(f"--require-root: {len(root_items)} tests cannot run: {obstacle}")
    for item in root_items:
        item.add_marker(pytest.mark.skip(reason=obstacle))


def _obstacle() -> str | None:
    """Return why namespaces cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "needs root: sudo make test"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        return f"needs namespaces (a container must be privileged): {tried.stderr.strip()}"
    return None
