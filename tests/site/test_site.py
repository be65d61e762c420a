"""The documentation site: complete, closed, and without what students should not see."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import testbed
from testbed.cli import command_line
from testbed.studies.labs.library import lab_directories
from tests.commands import Completed, completed

pytestmark = pytest.mark.programs

pytest.importorskip("mkdocs", reason="no mkdocs: the group documents is left out")

PROJECT = Path(__file__).parents[2]
BUILD = "scripts/site/build.py"


def _build(project: Path, site: Path) -> Completed:
    """Build the site of a checkout; without network, as far as programs respect it."""
    return completed(
        [sys.executable, str(project / BUILD), str(site)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://192.0.2.1:9"},
        cwd=project,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("site")
    done = _build(PROJECT, directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def _text(page: Path) -> str:
    return re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8"))


def _commands(name: str, command: Any) -> Iterator[str]:
    if not hasattr(command, "commands"):
        yield name
        return
    for word, below in command.commands.items():
        yield from _commands(f"{name} {word}", below)


def test_every_document_handout_and_notebook_is_there(site: Path) -> None:
    wanted = {
        page.relative_to(PROJECT).with_suffix(".html").as_posix()
        for page in PROJECT.glob("docs/**/*.md")
    }
    wanted |= {f"labs/{lab.name}.html" for lab in lab_directories()}
    wanted |= {f"examples/{page.stem}.html" for page in PROJECT.glob("examples/*.ipynb")}
    wanted |= {"index.html", "CHANGELOG.html", "CONTRIBUTING.html"}
    assert not {name for name in wanted if not (site / name).is_file()}


def test_the_reference_has_every_command_name_and_schema(site: Path) -> None:
    commands = _text(site / "reference/commands.html")
    for name in _commands("testbed", typer.main.get_command(command_line())):
        assert name in commands
    assert "--slower FACTOR" in commands
    python = _text(site / "reference/python.html")
    assert not {n for n in testbed.__all__ if not n.startswith("_") and n not in python}
    assert "equal seeds give equal results" in python
    schemas = _text(site / "reference/schemas.html")
    for schema in PROJECT.glob("docs/schema/*.json"):
        assert schema.name in schemas
    assert "seed of all random choices" in schemas


def test_students_see_neither_solutions_nor_notes_for_instructors(site: Path) -> None:
    names = {path.name for path in site.rglob("*")}
    assert not names & {"solve.py", "instructor.md", "instructor.html", "lab.yaml", "figures.py"}
    pages = "".join(_text(page) for page in site.rglob("*.html"))
    index = (site / "search/search_index.json").read_text(encoding="utf-8")
    for lab in lab_directories():
        first, *_ = (lab / "instructor.md").read_text(encoding="utf-8").splitlines()
        title = first.removeprefix("# ")
        assert title not in pages
        assert title not in index


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)"
    for page in site.rglob("*.html"):
        assert not re.findall(loads, page.read_text(encoding="utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\(\s*[\"']?https?:", sheet.read_text(encoding="utf-8")), sheet


def test_links_that_lead_nowhere_end_the_build(tmp_path: Path) -> None:
    """Each is named: one to a page that is not there, and one to a part of a page."""
    project = tmp_path / "checkout"
    shutil.copytree(PROJECT / "docs", project / "docs")
    for part in ("labs", "examples", "scenarios", "scripts/site"):
        shutil.copytree(PROJECT / part, project / part)
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "CITATION.cff"):
        shutil.copyfile(PROJECT / name, project / name)
    with (project / "docs/faults.md").open("a") as page:
        page.write("\n[a page](nowhere.md) and [a part](wireshark.md#no-such-part)\n")
    done = _build(project, tmp_path / "site")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    for name in ("faults.md", "nowhere.md", "wireshark.md#no-such-part"):
        assert name in said
