"""The table of conformance: its tests exist, its document is up to date, its mutations fit."""

import ast
import os
import re
import sys
from pathlib import Path

import pytest

from tests.commands import completed
from tests.modules import SCRIPTS, module_at

from .mutations import MUTATIONS, Mutation, all_pass, survives
from .rules import RULES
from .table import Rule, State, fields

PROJECT = Path(__file__).parents[2]
soak = pytest.mark.skipif("TESTBED_SOAK" not in os.environ, reason="a soak: set TESTBED_SOAK=1")
ROWS = (*fields(), *RULES)


def test_every_test_that_is_named_exists() -> None:
    named = {row.test for row in ROWS if row.test} | {each.test for each in MUTATIONS}
    files = sorted({test.partition("::")[0] for test in named})
    listed = completed(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *files],
        cwd=PROJECT,
        check=True,
    )
    ids = set(listed.stdout.splitlines())
    ids |= {line.partition("[")[0] for line in ids}  # all parameters of a test
    assert sorted(named - ids) == []


def test_a_row_has_a_test_exactly_if_the_rule_is_kept() -> None:
    for row in ROWS:
        assert bool(row.test) == (row.state in {State.DONE, State.OPTION}), row.rule
    assert len(set(ROWS)) == len(ROWS)


@pytest.mark.parametrize(
    ("agree", "confidence"),
    [
        ("4: FDMN, K", "high"),
        ("place 4: FDMN, K; meaning open", "high"),
        ("2: MN", "good"),
        ("FD; M: bits 5:4", "good"),
        ("1: F", "one source"),
        ("0: ", "inferred"),
        ("R", "standard"),
        ("conflict: 4791 I, D, G; 4971 DMN", "conflict"),
    ],
)
def test_confidence_follows_from_the_sources_that_agree(agree: str, confidence: str) -> None:
    assert Rule("", "", agree, "").confidence == confidence


def test_the_document_has_the_tables() -> None:
    conformance = module_at(SCRIPTS / "conformance.py")
    document = conformance.DOCUMENT.read_text()
    assert conformance.with_tables(document) == document
    assert len(re.findall("<!-- (?:summary|fields|rules|mutations) -->", document)) == 4


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_a_mutation_changes_one_place_and_is_code(mutation: Mutation) -> None:
    source = (PROJECT / mutation.file).read_text()
    assert source.count(mutation.code) == 1
    assert mutation.code != mutation.without
    ast.parse(source.replace(mutation.code, mutation.without))


@soak
def test_the_tests_of_mutations_pass_where_nothing_was_taken_out() -> None:
    assert all_pass()


@soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_without_its_rule_a_test_fails(mutation: Mutation) -> None:
    assert not survives(mutation)
