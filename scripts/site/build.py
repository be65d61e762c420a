"""Builds the documentation site: `make docs`.

Everything it consists of is in the checkout: documents, handouts of the labs, notebooks as they
were executed, and references that are generated from the code. It is built without network, and a
link that leads nowhere ends the build. The site loads nothing from elsewhere.
"""

import logging
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import notebook
import reference
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

PROJECT = Path(__file__).parents[2]
GENERATED = "reference"

TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "CITATION.cff")
"""Files of the checkout's root that pages name."""

SECTIONS = {
    "Understand": (
        "introduction",
        "concepts",
        "glossary",
        "protocol",
        "congestion",
        "faithful",
        "conformance",
    ),
    "Use": (
        *(
            "install",
            "scenarios",
            "bring-your-own",
            "faults",
            "operator",
            "ev-modes",
            "python",
            "algorithms",
            "studies",
            "simulator",
            "campaigns",
            "live",
        ),
        *("clustermapper", "baselines", "ordinary-traffic", "export", "device", "programs"),
        *("rdma", "torch", "wireshark", "ci"),
    ),
    "Judge": (
        *("results", "metrics", "trust", "paper/index", "paper/rows", "paper/studies"),
        *("performance", "link-model", "wire"),
    ),
}
"""The documents in the order in which the site lists them."""

TEACHING = ("labs", "writing-labs")
CHANGING = ("architecture",)


def stage(directory: Path) -> None:
    """Copy what the site consists of, and generate the rest.

    Solutions and notes for instructors are not among it.
    """
    for name in TOP:
        shutil.copyfile(PROJECT / name, directory / name)
    shutil.copytree(PROJECT / "docs", directory / "docs")
    for handout in sorted(PROJECT.glob("labs/*/handout.md")):
        shutil.copyfile(handout, _made(directory / f"labs/{handout.parent.name}.md"))
    for example in sorted((*PROJECT.glob("examples/*.py"), *PROJECT.glob("examples/*.yaml"))):
        shutil.copyfile(example, _made(directory / f"examples/{example.name}"))
    shutil.copytree(PROJECT / "scenarios", directory / "scenarios")
    for file in sorted(PROJECT.glob("examples/*.ipynb")):
        _made(directory / f"examples/{file.stem}.md").write_text(
            notebook.as_markdown(file), encoding="utf-8"
        )
    for name, text in reference.pages().items():
        _made(directory / GENERATED / f"{name}.md").write_text(text, encoding="utf-8")
    for page in directory.rglob("*.md"):
        page.write_text(_linked(page.read_text(encoding="utf-8")), encoding="utf-8")


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _linked(text: str) -> str:
    """A page whose links lead to pages of the site: of notebooks, and of files that it lacks."""
    text = text.replace(".ipynb)", ".md)")
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)?(?:scripts|testbed|tests)/[^)]*\)", r"\1", text)


def navigation() -> list[dict[str, object]]:
    """The site's sections and pages."""
    handouts = [f"labs/{path.parent.name}.md" for path in sorted(PROJECT.glob("labs/*/handout.md"))]
    examples = [f"examples/{path.stem}.md" for path in sorted(PROJECT.glob("examples/*.ipynb"))]
    sections: list[dict[str, object]] = [{"Home": "README.md"}]
    sections += [{title: _documents(names)} for title, names in SECTIONS.items()]
    sections[2]["Use"] = [*_documents(SECTIONS["Use"]), {"Notebooks": examples}]
    return [
        *sections,
        {"Learn": [*_documents(TEACHING), {"Handouts": handouts}]},
        {"Reference": [f"{GENERATED}/{name}.md" for name in reference.PAGES]},
        {"Change": ["CONTRIBUTING.md", *_documents(CHANGING), "CHANGELOG.md"]},
    ]


def _documents(names: tuple[str, ...]) -> list[object]:
    return [f"docs/{name}.md" for name in names]


def configuration(pages: Path, site: Path) -> dict[str, object]:
    """The configuration of MkDocs: strict, and with nothing from elsewhere."""
    return {
        "site_name": "MRC testbed",
        "site_url": "",
        "docs_dir": str(pages),
        "site_dir": str(site),
        "use_directory_urls": False,  # so that pages can be read as files too
        "nav": navigation(),
        "strict": True,
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn", "absolute_links": "warn"},
            "links": {
                "not_found": "warn",
                "anchors": "warn",
                "absolute_links": "warn",
                "unrecognized_links": "warn",
            },
        },
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.sections", "navigation.top", "content.code.copy"],
            "palette": [
                {
                    "media": "(prefers-color-scheme: light)",
                    "scheme": "default",
                    "toggle": {"icon": "material/weather-night", "name": "Dark"},
                },
                {
                    "media": "(prefers-color-scheme: dark)",
                    "scheme": "slate",
                    "toggle": {"icon": "material/weather-sunny", "name": "Light"},
                },
            ],
        },
        "extra": {"generator": False},
        "plugins": ["search"],
        "markdown_extensions": [
            {"toc": {"permalink": True, "slugify": "__slug__"}},
            "tables",
            "fenced_code",
            "sane_lists",
            "md_in_html",
            {"pymdownx.highlight": {"use_pygments": True}},
            "pymdownx.superfences",
        ],
    }


def main() -> None:
    """Build the site into the directory that is named."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    site = Path(sys.argv[1]).resolve()
    with TemporaryDirectory(prefix="testbed-site-") as directory:
        pages, file = Path(directory) / "pages", Path(directory) / "mkdocs.yml"
        pages.mkdir()
        stage(pages)
        text = yaml.safe_dump(configuration(pages, site), sort_keys=False)
        # As GitHub makes anchors, which the documents link to.
        slug = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
        file.write_text(text.replace("__slug__", slug), encoding="utf-8")
        build(load_config(str(file)))
    print(f"site: {site}/index.html")


if __name__ == "__main__":
    main()
