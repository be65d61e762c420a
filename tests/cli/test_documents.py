"""The documents lead nowhere that is not there: links, anchors, files, commands, scenarios."""

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import typer

from testbed.cli import command_line
from testbed.model.faults.kinds import Fault
from testbed.model.files.scenarios import load_scenario
from testbed.studies.bench.measure import PARTS

PROJECT = Path(__file__).parents[2]
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md")
PAGES = [*(PROJECT / name for name in TOP), *sorted(PROJECT.glob("docs/**/*.md"))]
HANDOUTS = sorted(PROJECT.glob("labs/*/*.md"))
SCENARIOS = {file.stem for file in PROJECT.glob("scenarios/*.yaml")} | {"name-or-file"}
TARGETS = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
MADE = ("results/", "figures/")  # by a run
TESTBED = typer.main.get_command(command_line())

each_page = pytest.mark.parametrize(
    "page", PAGES + HANDOUTS, ids=lambda page: str(page.relative_to(PROJECT))
)


def prose(page: Path) -> str:
    """A page without its listings."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def listed(page: Path) -> Iterator[str]:
    """The lines of a page's listings; a line that ends in a backslash goes on."""
    for listing in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        yield from re.sub(r"\\\n\s*", "", listing).splitlines()


def code(page: Path) -> Iterator[str]:
    """What a page shows as code: the lines of listings, and words in backticks."""
    yield from listed(page)
    for words in re.findall(r"`([^`]+)`", prose(page)):
        yield words.replace("\n", " ").replace("\\|", "|")


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings have on GitHub."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands(lines: Iterable[str]) -> Iterator[list[str]]:
    """Every call of `testbed` in some lines, without its first word."""
    for line in lines:
        if "NOPASSWD" in line:  # a rule of sudo, no command
            continue
        for call in re.findall(r"(?:^|[\s/])testbed ([a-z][^|#&;]*)", line):
            if "import" not in line:
                yield shlex.split(call)


@each_page
def test_every_link_resolves(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    for target in targets:
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        there = page.parent / file if file else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_and_image_is_linked_from_some_page() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)", prose(page))
    }
    images = {file for file in PROJECT.glob("docs/images/**/*") if file.is_file()}
    assert images.union(PROJECT.glob("docs/**/*.md")) <= linked


@each_page
def test_every_command_and_each_of_its_options_is_there(page: Path) -> None:
    for words in commands(code(page)):
        command = TESTBED
        while isinstance(command, typer.core.TyperGroup):
            assert words, f"no subcommand of {command.name}"
            names = words.pop(0).split("|")  # `fault inject|heal|list` stands for three
            assert set(names) <= command.commands.keys()
            command = command.commands[names[0]]
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert given <= known | {"--help"}, words


@each_page
def test_every_command_in_a_listing_is_accepted_by_the_command_line(page: Path) -> None:
    """Its options with their values, and its arguments, as they would be if it were typed."""
    for words in commands(listed(page)):
        command = TESTBED
        given = list(words)
        while isinstance(command, typer.core.TyperGroup):
            command = command.commands[given.pop(0).partition("|")[0]]
        try:
            command.make_context("testbed", given)
        except typer.Exit:
            assert "--help" in words
        except Exception as error:
            raise AssertionError(f"testbed {shlex.join(words)}: {error}") from error


@each_page
def test_every_scenario_target_and_part_is_there(page: Path) -> None:
    for line in code(page):
        named = re.findall(r"(?:SCENARIO=|testbed run |testbed simulate )([a-z][\w./-]*)", line)
        assert {name for name in named if not name.endswith(".yaml")} <= SCENARIOS, line
        assert set(re.findall(r"(?:^|[\s(])make ([a-z-]+)", line)) <= TARGETS, line
        for parts in re.findall(r"testbed bench ((?:[a-z]+[a-z -]*)?)", line):
            words = parts.split(" --")[0].split()
            assert set(words) <= PARTS.keys(), line


@each_page
def test_every_file_of_the_project_that_is_named_is_there(page: Path) -> None:
    for words in code(page):
        if re.fullmatch(r"([\w.-]+/)+[\w-]+\.(py|yaml|md|sh|c|h|json|png|j2)", words):
            places = (PROJECT / words, PROJECT / "testbed" / words)
            assert words.startswith(MADE) or any(place.exists() for place in places), words


def test_the_example_of_every_fault_kind_is_valid(tmp_path: Path) -> None:
    listing = re.search(
        r"```yaml\n(timeline:.*?)```", (PROJECT / "docs/faults.md").read_text(), re.DOTALL
    )
    assert listing is not None
    head = "name: x\ntopology: clos-4plane\nduration: 90 RTT\nworkload: {kind: permutation}\n"
    (tmp_path / "x.yaml").write_text(head + listing[1])
    kinds = {fault.kind for fault in load_scenario(str(tmp_path / "x.yaml")).timeline}
    assert kinds == {kind.model_fields["kind"].default for kind in get_args(get_args(Fault)[0])}


def test_the_guide_to_the_core_has_each_module_below_what_it_imports() -> None:
    text = (PROJECT / "docs/protocol.md").read_text()
    core = PROJECT / "testbed/mrc"
    explained: list[str] = []
    for row in re.findall(r"^\| `mrc/[^|]*\|[^|]*\|.*\|$", text, re.MULTILINE):
        modules, _, look_for = (cell.strip() for cell in row.strip("|").split("|", 2))
        names = re.findall(r"`mrc/([^`]+)`", modules)
        sources = [(core / name).read_text() for name in names]
        for name in re.findall(r"`(\w+)`", look_for):
            found = rf"\b(def|class) {name}\b|self\.{name}\b"
            assert re.search(found, "".join(sources)), (name, names)
        for name, source in zip(names, sources, strict=True):
            explained.append(name)
            imports = re.findall(r"^from testbed\.mrc\.(\S+) import", source, re.MULTILINE)
            below = {f"{module.replace('.', '/')}.py" for module in imports}
            assert below <= {*explained}, f"{name} is not below what it imports"
    modules = {str(file.relative_to(core)) for file in core.rglob("*.py")}
    assert sorted(explained) == sorted(m for m in modules if not m.endswith("__init__.py"))


def test_the_glossary_has_each_term_once_and_in_order() -> None:
    tables = re.findall(
        r"^\| --- .*\n((?:\|.*\n)+)", (PROJECT / "docs/glossary.md").read_text(), re.MULTILINE
    )
    assert len(tables) > 4
    terms = [[row.split("|")[1].strip().lower() for row in table.splitlines()] for table in tables]
    for table in terms:
        assert table == sorted(
            table, key=lambda term: re.sub(r"[^a-z0-9 ]", "", term.replace("-", " "))
        )
    every = [term for table in terms for term in table]
    assert len(every) == len(set(every))
