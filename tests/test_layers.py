"""Who may import whom: the arrows of docs/architecture.md, and none beside them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import testbed

ROOT = Path(testbed.__file__).parent

MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "mrc": set(),
    "baselines": {"mrc"},
    "workloads": {"model", "mrc"},
    "files": {"model"},
    "results": {"model"},
    "sandbox": {"model"},
    "fabric": {"model", "mrc", "sandbox"},
    "host": {"baselines", "model", "mrc", "results", "workloads"},
    "endpoint": {"fabric", "host", "model", "mrc", "sandbox", "workloads"},
    "mapper": {"model"},
    "mapper/agents": {"mapper", "model", "mrc", "results", "sandbox"},
    "sim": {"host", "mapper", "model", "mrc", "results", "workloads"},
    "controller": {"fabric", "files", "model", "sandbox"},
    "perftest": {"endpoint", "fabric", "model", "mrc", "sandbox", "workloads"},
    "drawings": {"model", "mrc", "results"},
    "campaign": {"files", "model", "results"},
    "paper": {"campaign", "files", "model", "results"},
    "experiment": {
        "controller",
        "endpoint",
        "fabric",
        "fast",
        "host",
        "mapper",
        "model",
        "results",
        "sandbox",
    },
}
"""`bench` and `cli` stand above these and may use all of them.

A sub-folder that may import more than its package has a line of its own.
"""


def imported(file: Path) -> Iterator[str]:
    """Yield the project's packages that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            if module.startswith("testbed."):
                yield module.split(".")[1]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_down(package: str) -> None:
    folders = [ROOT / folder for folder in MAY_IMPORT if folder.startswith(f"{package}/")]
    files = [
        file
        for file in (ROOT / package).rglob("*.py")
        if not any(file.is_relative_to(folder) for folder in folders)
    ]
    assert files
    found = {f"{file.relative_to(ROOT)}: {name}" for file in files for name in imported(file)}
    allowed = MAY_IMPORT[package] | {package}
    assert not {one for one in found if one.split(": ")[1] not in allowed}
