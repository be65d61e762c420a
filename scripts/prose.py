"""Check the spelling of all files (codespell) and the prose of all documents (proselint).

The terms of docs/glossary.md are the vocabulary: they are never mistakes. Listings and words in
backticks are no prose. It needs no network.
"""

import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from testbed import interpreter

PROJECT = Path(__file__).parents[1]
GLOSSARY = PROJECT / "docs/glossary.md"
SPELLED = ("docs", "testbed", "scenarios", "topologies", "labs", "scripts", "examples")
SKIPPED = (
    "*.html,*.js,*.svg,*.png,*.json,*.parquet,*.so,*.pyc,*.lock,*/vendor/*,*/golden/*,*/recorded/*"
)

OTHER_WORDS = frozenset({"ect", "vermillion"})
"""ECN-capable transport; a colour of the palette of Okabe and Ito, as they spell it."""

UNUSED = ": typography."
"""Checks that are left out: straight quotes and three dots are the style here."""

BASE64 = "[A-Za-z0-9+/]{80,}"
"""The pictures of notebooks."""

TERM = re.compile(r"^\| ([^|]+) \| [^|]+ \| [^|]* \|$", re.MULTILINE)
NO_PROSE = re.compile(r"^```.*?^```|`[^`]*`|\]\([^)]*\)|<!--.*?-->", re.MULTILINE | re.DOTALL)
LEAVES_OUT = re.compile(r"^(#+ .*|\|[ -:|]*\|)$", re.MULTILINE)


def documents() -> list[Path]:
    """Every document for people."""
    places = (PROJECT.glob("*.md"), PROJECT.glob("docs/**/*.md"), PROJECT.glob("labs/**/*.md"))
    return sorted({PROJECT / "results/README.md"}.union(*places))


def vocabulary() -> frozenset[str]:
    """The words of the glossary's terms, in lower case."""
    terms = " ".join(TERM.findall(GLOSSARY.read_text(encoding="utf-8")))
    return frozenset(re.findall(r"[a-z][a-z-]+", terms.lower()))


def prose(text: str) -> str:
    """A document without listings, code, addresses and headings; lines keep their numbers."""
    blank = re.compile(r"[^\n]+")
    plain = NO_PROSE.sub(lambda match: blank.sub(";", match[0]), text)
    return LEAVES_OUT.sub("", plain).replace(" | ", " ; ")


def misspelt() -> int:
    """Run codespell; returns its exit status."""
    words = ",".join(sorted(vocabulary() | OTHER_WORDS))
    places = [*map(str, PROJECT.glob("*.md")), *(str(PROJECT / name) for name in SPELLED)]
    options = ("--skip", SKIPPED, "-L", words, "--ignore-regex", BASE64)
    command = interpreter.python("-m", "codespell_lib", *options, *places)
    return interpreter.run(command, cwd=PROJECT).returncode


def badly_written() -> int:
    """Run proselint over the documents' prose; returns 1 if it finds something."""
    if find_spec("proselint") is None:
        print("prose: not checked, proselint does not install on this Python")
        return 0
    with tempfile.TemporaryDirectory() as directory:
        for page in documents():
            copy = Path(directory, page.relative_to(PROJECT))
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(prose(page.read_text(encoding="utf-8")), encoding="utf-8")
        pages = [str(page.relative_to(PROJECT)) for page in documents()]
        proselint = str(Path(sys.executable).with_name("proselint"))
        done = subprocess.run(
            [proselint, "-o", "compact", "check", *pages],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    findings = [line.removeprefix(f"{directory}/") for line in done.stdout.splitlines()]
    mistakes = [
        line for line in findings if re.match(r"\S+:\d+:\d+: ", line) and UNUSED not in line
    ]
    print(*mistakes, done.stderr, sep="\n", end="")
    return int(bool(mistakes or done.stderr))


if __name__ == "__main__":
    sys.exit(max(misspelt(), badly_written()))
