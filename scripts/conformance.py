"""Write the tables of docs/conformance.md from the table of conformance in tests/conformance.

python scripts/conformance.py            write the document
python scripts/conformance.py mutate     take each rule of mutations.py out of a copy of the code
                                         and run its test; exit status 1 if one still passes
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))

from tests.conformance.mutations import MUTATIONS, all_pass, survives  # noqa: E402 - beside this folder
from tests.conformance.rules import RULES  # noqa: E402
from tests.conformance.table import Rule, State, fields  # noqa: E402

DOCUMENT = PROJECT / "docs" / "conformance.md"
_PART = re.compile(r"(<!-- (summary|fields|rules|mutations) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(document: str) -> str:
    """A document with the tables that its comments ask for."""
    parts = {
        "summary": _summary,
        "fields": lambda: _sections(fields(), "field"),
        "rules": lambda: _sections(RULES, "rule"),
        "mutations": _mutations,
    }
    return _PART.sub(lambda match: match[1] + parts[match[2]]() + match[3], document)


def _summary() -> str:
    counts = Counter(rule.state for rule in (*fields(), *RULES))
    return _table(("state", "rows"), ((state.value, str(counts[state])) for state in State))


def _sections(rules: Iterable[Rule], what: str) -> str:
    head = (what, "agree", "confidence", "here", "test")
    return "".join(
        f"\n### {section}\n\n{_table(head, (_row(rule) for rule in group))}\n"
        for section, group in groupby(rules, lambda rule: rule.section)
    )


def _row(rule: Rule) -> tuple[str, ...]:
    state = "" if rule.state in {State.DONE, State.OPEN} else f"**{rule.state.value}**: "
    agree = "none" if rule.agree == "0: " else rule.agree
    return rule.rule, agree, rule.confidence, f"{state}{rule.here}", rule.test and f"`{rule.test}`"


def _mutations() -> str:
    return _table(
        ("rule that is taken out", "of", "test that then fails"),
        ((each.rule, f"`{each.file}`", f"`{each.test}`") for each in MUTATIONS),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _mutate() -> int:
    """Try each mutation; returns how many tests still pass.

    Raises:
        RuntimeError: they do not all pass before, or could not be run.
    """
    if not all_pass():
        raise RuntimeError("the tests fail where nothing was taken out")
    survivors = 0
    for mutation in MUTATIONS:
        survived = survives(mutation)
        survivors += survived
        print("still passes:" if survived else "fails:", mutation.rule, flush=True)
    return survivors


if __name__ == "__main__":
    if sys.argv[1:] == ["mutate"]:
        sys.exit(min(1, _mutate()))
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
