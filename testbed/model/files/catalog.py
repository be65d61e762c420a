"""The files of topologies and scenarios: those that ship, by name, and all others by path."""

from pathlib import Path

from testbed.installation import PROJECT
from testbed.model.errors import InputError, did_you_mean
from testbed.model.file_names import is_there

TOPOLOGIES = PROJECT / "topologies"
SCENARIOS = PROJECT / "scenarios"

_SUFFIXES = (".yaml", ".yml")
_PATHS = (*_SUFFIXES, ".topo")
"""How a path may end without a slash in it: also as htsim's topologies do."""

_FEW = 10
"""So many names a message can list."""


def files_in(directory: Path) -> dict[str, Path]:
    """The YAML files of a directory by their names without suffix, sorted."""
    files = (path for path in directory.glob("*") if path.suffix in _SUFFIXES)
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def is_path(name_or_path: str) -> bool:
    return "/" in name_or_path or name_or_path.endswith(_PATHS)


def find_topology(name_or_path: str, base: Path = Path()) -> Path:
    """The file of a topology; a path is relative to `base`.

    Raises:
        InputError: no topology that ships has this name.
    """
    return _find(name_or_path, "topology", TOPOLOGIES, base)


def find_scenario(name_or_path: str) -> Path:
    """The file of a scenario.

    Raises:
        InputError: no scenario that ships has this name.
    """
    return _find(name_or_path, "scenario", SCENARIOS, Path())


def is_shipped(name_or_path: str) -> bool:
    """Whether a scenario is the project's own, named or by its path."""
    return find_scenario(name_or_path).resolve().is_relative_to(SCENARIOS.resolve())


def relative_to_here(file: Path) -> Path:
    """The path of a file from the working directory, if the file is below it."""
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def _find(name_or_path: str, kind: str, directory: Path, base: Path) -> Path:
    names = files_in(directory)
    if is_path(name_or_path):
        file, shipped = base / name_or_path, names.get(Path(name_or_path).stem)
        if shipped is not None and shipped.name == name_or_path and not is_there(file):
            remedy = f"for the one that ships write {shipped.stem}"
            raise InputError.of(kind, name_or_path, "a file that exists", remedy)
        return relative_to_here(file)
    if name_or_path in names:
        return relative_to_here(names[name_or_path])
    remedy = did_you_mean(name_or_path, tuple(names))
    others = ((suffix, base / f"{name_or_path}{suffix}") for suffix in _SUFFIXES)
    files = [suffix for suffix, file in others if is_there(file, Path.is_file)]
    if is_there(base / name_or_path, Path.is_file):
        remedy = f"for the file write ./{name_or_path}"
    elif files:
        remedy = f"for the file write {name_or_path}{files[0]}"
    elif name_or_path in files_in(TOPOLOGIES).keys() | files_in(SCENARIOS):
        remedy = f"{name_or_path} is a {'topology' if kind == 'scenario' else 'scenario'}"
    known = f"one of {', '.join(names)}" if len(names) <= _FEW else "a name that testbed list shows"
    expected = f"{known}, or the path of a YAML file"
    raise InputError.of(kind, name_or_path, expected, remedy)
