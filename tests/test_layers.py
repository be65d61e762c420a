"""Who may import whom: the arrows of docs/architecture.md, and none beside them."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import testbed

ROOT = Path(testbed.__file__).parent

MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "mrc": set(),
    "host/roce": {"mrc"},
    "host/workloads": {"model", "mrc"},
    "model/files": {"installation", "model"},
    "control_api": {"model", "model/files"},
    "results": {"model", "rights"},
    "sandbox": {"model", "rights"},
    "drawings": {"model", "results"},
    "exports": {"model", "mrc"},
    "emulation/fabric": {"model", "mrc", "rights", "sandbox"},
    "host": {"host/roce", "host/workloads", "interpreter", "model", "mrc", "results"},
    "emulation/endpoint": {
        "emulation/fabric",
        "host",
        "host/workloads",
        "model",
        "mrc",
        "rights",
        "sandbox",
    },
    "mapper": {"model"},
    "mapper/agents": {"mapper", "model", "mrc", "results", "sandbox"},
    "sim": {"host", "host/workloads", "mapper", "model", "mrc", "results"},
    "emulation/controller": {"control_api", "emulation/fabric", "installation", "model", "sandbox"},
    "device": {"emulation/endpoint", "emulation/fabric", "host", "model", "mrc", "sandbox"},
    "emulation/perftest": {
        "__main__",  # its commands begin as that one
        "command_options",
        "device",
        "emulation/endpoint",
        "emulation/fabric",
        "host/workloads",
        "installation",
        "limits",
        "model",
        "mrc",
        "sandbox",
    },
    "emulation/ev_modes": {"emulation/endpoint", "emulation/fabric", "model", "mrc", "sandbox"},
    "live": {
        "control_api",
        "drawings",
        "interpreter",
        "model",
        "model/files",
        "results",
        "rights",
        "runs",
        "sandbox",
    },
    "runs": {
        "emulation/experiment",
        "emulation/fabric",
        "fast",
        "installation",
        "interpreter",
        "limits",
        "model",
        "model/files",
        "device/paced",
        "results",
        "rights",
        "sandbox",
        "sim",
    },
    "device/paced": {
        "control_api",
        "device",
        "emulation/controller",
        "emulation/endpoint",
        "emulation/experiment",
        "fast",
        "host",
        "host/workloads",
        "limits",
        "model",
        "mrc",
        "results",
        "sandbox",
        "sim",
    },
    "studies/labs": {
        "host",
        "installation",
        "interpreter",
        "model",
        "model/files",
        "results",
        "rights",
        "runs",
        "sim",
    },
    "studies/study": {"host", "installation", "model", "model/files", "results", "runs"},
    "studies/paper": {"model", "model/files", "results", "runs", "studies/study"},
    "emulation/experiment": {
        "device",
        "emulation/controller",
        "emulation/endpoint",
        "emulation/fabric",
        "fast",
        "host",
        "installation",
        "limits",
        "mapper",
        "mapper/agents",
        "model",
        "results",
        "rights",
        "sandbox",
    },
}
"""What each folder, or module, may import. One with a row of its own is no part of its parent here.

`cli` and `studies/bench` stand above these and may use all of them.
"""


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _module(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {_module(file): file for file in ROOT.rglob("*.py")}


def imported(file: Path) -> Iterator[str]:
    """Yield the folders of `MAY_IMPORT`, or the project's packages, that a file imports."""
    for node in ast.walk(ast.parse(_text(file))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            if module.startswith("testbed."):
                yield _folder("/".join(module.split(".")[1:]))


def _folder(path: str) -> str:
    """The folder with a row of its own that a path below `testbed/` is in, else its package.

    The commands of studies belong to the command line.
    """
    if fnmatch(path, "studies/*/commands"):
        return "cli"
    rows = [row for row in MAY_IMPORT if f"{path}/".startswith(f"{row}/")]
    return max(rows, key=len, default=path.partition("/")[0])


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_down(folder: str) -> None:
    files = [
        file
        for file in (ROOT / folder).rglob("*.py")
        if _folder(file.relative_to(ROOT).with_suffix("").as_posix()) == folder
    ] or [ROOT / f"{folder}.py"]
    found = {f"{file.relative_to(ROOT)}: {name}" for file in files for name in imported(file)}
    allowed = MAY_IMPORT[folder] | {folder}
    assert not {one for one in found if one.split(": ")[1] not in allowed}


def test_nothing_below_imports_what_is_studied() -> None:
    """Not even the command line: it finds their commands; but Python's interface has studies."""
    importers = {
        str(file.relative_to(ROOT))
        for file in ROOT.rglob("*.py")
        if not file.is_relative_to(ROOT / "studies")
        for name in imported(file)
        if name.startswith("studies") and (file, name) != (ROOT / "__init__.py", "studies/study")
    }
    assert not importers


def test_what_the_wheel_is_built_by_imports_nothing_of_the_package() -> None:
    """The build hook loads it by itself, before the package can be imported."""
    for file in ("installation.py", "device/compiling.py"):
        assert not list(imported(ROOT / file))


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types count as well: whoever reads one module needs the other."""
    graph = {module: set(_modules_imported(file)) for module, file in MODULES.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_folders_of_the_core_import_each_other_in_a_circle() -> None:
    """Each folder of `mrc` taken as one: its parts are read from below, one after the other."""

    def part(module: str) -> str:
        name = module.split(".")[2]
        return name if (ROOT / "mrc" / name).is_dir() else module

    graph: dict[str, set[str]] = {}
    for module, file in MODULES.items():
        if module.startswith("testbed.mrc."):
            inside = {one for one in _modules_imported(file) if one.startswith("testbed.mrc.")}
            found = graph.setdefault(part(module), set())
            found |= {part(one) for one in inside} - {part(module)}
    TopologicalSorter(graph).prepare()


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
        folder = re.match(r"\*\*`([\w/]+)(?:/|\.py)`", paragraph)
        said = re.search(r"Imports\s([^.]*)\.", paragraph)
        if folder and said:
            imports[folder[1]] = {*re.findall(r"`([\w/]+)`", said[1])}
    return imports


def test_the_document_says_what_each_folder_may_import() -> None:
    assert _documented() == MAY_IMPORT


def test_what_the_document_names_is_there() -> None:
    """Files and folders, by their whole path or its end; one of a user is none of them."""
    project = ROOT.parent
    named = {*re.findall(r"`([\w/]+(?:\.py|/))`", _text(project / "docs" / "architecture.md"))}
    places = [*ROOT.rglob("*"), *project.glob("*"), *project.glob("*/*.py")]
    known = [f"/{place}/" if place.is_dir() else f"/{place}" for place in places]
    gone = {name for name in named if not any(place.endswith(f"/{name}") for place in known)}
    assert gone == {"json.py"}
