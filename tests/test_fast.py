"""The core as C is used only where it is of the source that is there."""

import ast
import os
from pathlib import Path

import pytest

from testbed import fast
from testbed.model.errors import MachineError


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a core of two modules is, built with endpoint and simulator a second after."""
    monkeypatch.setattr(fast, "_PACKAGE", tmp_path)
    directory = tmp_path / "mrc"
    directory.mkdir()
    for module in ("wire.py", "qp.py"):
        (directory / module).touch()
    for source in fast.sources():
        source.parent.mkdir(parents=True, exist_ok=True)
        for suffix, second in ((".py", 1), (".cpython-311-x86_64-linux-gnu.so", 2)):
            file = source.with_name(f"{source.stem}{suffix}")
            file.touch()
            os.utime(file, (second, second))
    return directory


def test_a_build_of_the_source_passes(core: Path) -> None:
    fast.check()
    assert fast.is_built()
    assert core.is_dir()


def test_a_source_that_changed_since_is_refused_with_the_remedy(core: Path) -> None:
    os.utime(core / "qp.py", (3, 3))
    with pytest.raises(MachineError, match="older than its source") as caught:
        fast.check()
    assert "make fast" in str(caught.value)


def test_a_build_of_a_part_is_refused(core: Path) -> None:
    next(core.glob("qp.*.so")).unlink()
    with pytest.raises(MachineError, match="older than its source"):
        fast.check()


def test_no_build_is_fine(core: Path) -> None:
    for file in core.parent.rglob("*.so"):
        file.unlink()
    fast.check()
    assert not fast.is_built()


@pytest.mark.parametrize("source", fast.sources(), ids=lambda path: path.stem)
def test_required_arguments_come_before_optional_ones(source: Path) -> None:
    """Mypyc fails at functions whose required keyword follows one with a default."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            optional = [default is not None for default in node.args.kw_defaults]
            assert optional == sorted(optional), node.name


@pytest.mark.parametrize("source", fast.sources(), ids=lambda path: path.stem)
def test_the_name_of_a_caught_error_has_no_other_use(source: Path) -> None:
    """As C a name has one type in a function: catching the error would raise TypeError."""
    for function in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        caught = {node.name for node in nodes if isinstance(node, ast.ExceptHandler)}
        set_too = {
            node.id
            for node in nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        assert not caught & set_too, f"{source}:{function.lineno}"


def test_no_python_class_inherits_from_a_compiled_one() -> None:
    """It could not be defined: interpreted classes cannot inherit from compiled ones."""
    root = Path(fast.__file__).parent
    compiled = {
        ".".join(path.relative_to(root.parent).with_suffix("").parts) for path in fast.sources()
    }
    found = set[str]()
    for path in {*root.rglob("*.py")} - {*fast.sources()}:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in compiled
            for alias in node.names
        }
        found |= {
            f"{path.relative_to(root)}: {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            and any(isinstance(base, ast.Name) and base.id in imported for base in node.bases)
        }
    assert not found


def test_each_source_is_named_once() -> None:
    """Mypyc refuses a module that it is given twice."""
    assert len(fast.sources()) == len(set(fast.sources()))
