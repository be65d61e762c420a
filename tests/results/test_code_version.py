"""Which changes of the code have finished runs made again."""

import shutil
from pathlib import Path

import pytest

from testbed.results import code_version as module


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package's sources, whose digests are computed each time."""
    copy = tmp_path / "testbed"
    shutil.copytree(
        module.PACKAGE, copy, ignore=lambda _, names: {n for n in names if "." in n[1:]} - _SOURCES
    )
    monkeypatch.setattr(module, "PACKAGE", copy)
    return copy


_SOURCES = {"__init__.py", "series.py", "run.py", "qp.py"}


def _digests() -> tuple[str, str]:
    return module.code_version.__wrapped__(), module.package_version.__wrapped__()


@pytest.mark.parametrize("folder", ["runs", "studies", "studies/labs", "cli"])
def test_what_makes_or_studies_runs_makes_none_again(package: Path, folder: str) -> None:
    """A worker is another one all the same: it is sent calls of any part."""
    run, package_then = _digests()
    changed = package / folder / "__init__.py"
    changed.write_text(changed.read_text() + "# changed\n")
    assert _digests()[0] == run
    assert _digests()[1] != package_then


@pytest.mark.parametrize("file", ["mrc/qp.py", "sim/run.py", "emulation/experiment/__init__.py"])
def test_what_decides_a_result_has_runs_made_again(package: Path, file: str) -> None:
    before = _digests()
    changed = package / file
    changed.write_text(changed.read_text() + "# changed\n")
    assert all(now != then for now, then in zip(_digests(), before, strict=True))


def test_what_is_left_out_is_there() -> None:
    """Else a folder or module that was renamed would decide the identity of runs again."""
    for name in module.WITHOUT_INFLUENCE - module.WITH_A_WHEEL:
        place = module.PACKAGE / name
        assert place.is_dir() or place.with_suffix(".py").is_file(), name
