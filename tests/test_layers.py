"""Who may import whom: the arrows of docs/architecture.md, and none beside them."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import testbed

ROOT = Path(testbed.__file__).parent

MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "mrc": set(),
    "baselines": {"mrc"},
    "workloads": {"model", "mrc"},
    "files": {"installation", "model"},
    "control_api": {"files", "model"},
    "results": {"model", "rights"},
    "sandbox": {"model", "rights"},
    "fabric": {"model", "mrc", "rights", "sandbox"},
    "host": {"baselines", "interpreter", "model", "mrc", "results", "workloads"},
    "endpoint": {"fabric", "host", "model", "mrc", "rights", "sandbox", "workloads"},
    "mapper": {"model"},
    "mapper/agents": {"mapper", "model", "mrc", "results", "sandbox"},
    "sim": {"host", "mapper", "model", "mrc", "results", "workloads"},
    "controller": {"control_api", "fabric", "model", "sandbox"},
    "device": {"endpoint", "fabric", "model", "mrc", "sandbox"},
    "perftest": {
        "command_options",
        "endpoint",
        "fabric",
        "installation",
        "limits",
        "model",
        "mrc",
        "sandbox",
        "workloads",
    },
    "ev_modes": {"endpoint", "fabric", "model", "mrc", "sandbox"},
    "drawings": {"model", "mrc", "results"},
    "live": {
        "control_api",
        "drawings",
        "files",
        "interpreter",
        "model",
        "results",
        "rights",
        "sandbox",
        "sim",
    },
    "campaign": {"files", "interpreter", "limits", "model", "results", "rights"},
    "interface": {"campaign", "files", "model", "results", "rights", "sim"},
    "labs": {
        "campaign",
        "files",
        "host",
        "installation",
        "interpreter",
        "model",
        "results",
        "sim",
    },
    "paper": {"campaign", "files", "model", "results"},
    "experiment": {
        "controller",
        "endpoint",
        "fabric",
        "fast",
        "host",
        "installation",
        "limits",
        "mapper",
        "model",
        "results",
        "rights",
        "sandbox",
    },
}
"""`bench` and `cli` stand above these and may use all of them.

A sub-folder that may import more than its package has a line of its own.
"""


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _module(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {_module(file): file for file in ROOT.rglob("*.py")}


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


def test_what_the_wheel_is_built_by_imports_nothing_of_the_package() -> None:
    """The build hook loads it by itself, before the package can be imported."""
    for file in ("installation.py", "device/compiling.py"):
        assert not list(imported(ROOT / file))


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types count as well: whoever reads one module needs the other."""
    graph = {module: set(_modules_imported(file)) for module, file in MODULES.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_processes_are_forked_in_one_place() -> None:
    """So that tracebacks, exit statuses and clean-up are handled once."""
    for function in ("fork", "_exit"):
        callers = [module for module, file in MODULES.items() if f"os.{function}(" in _text(file)]
        assert len(callers) == 1
        assert callers[0].startswith("testbed.sandbox")


def _modules_imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(_text(file))):
        if isinstance(node, ast.Import):
            names = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(f"{node.module}.{alias.name}", str(node.module)) for alias in node.names]
        else:
            continue
        for name, package in names:
            module = name if name in MODULES else package
            if module in MODULES and module != _module(file):
                yield module


def _documented() -> dict[str, set[str]]:
    """What docs/architecture.md says that each folder imports."""
    document = _text(ROOT.parent / "docs" / "architecture.md")
    folders = document.partition("## The folders")[2].partition("\n## ")[0]
    imports = {}
    for paragraph in folders.split("\n\n"):
        folder = re.match(r"\*\*`(\w+)/`", paragraph)
        said = re.search(r"Imports\s([^.]*)\.", paragraph)
        if folder and said:
            imports[folder[1]] = {*re.findall(r"`(\w+)`", said[1])}
    return imports


def test_the_document_says_what_each_folder_may_import() -> None:
    assert _documented() == {name: may for name, may in MAY_IMPORT.items() if "/" not in name}
