"""What students wrote is printed and written without commands to a terminal."""

import json

import pytest

from testbed.cli.screen import print_error
from testbed.model.errors import InputError, printable
from testbed.studies.labs.grading.commands import _print_grades
from testbed.studies.labs.grading.formats import to_csv, to_gradescope
from testbed.studies.labs.grading.grades import Grade, TaskGrade

HOSTILE = "a\x1b[2J\x07\x9b1m\u202eb"
SHOWN = "a\\x1b[2J\\x07\\x9b1m\\u202eb"


def test_what_cannot_be_printed_is_shown_by_its_code() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("two\nlines\tand\xa0blanks, \u00fc \N{RIGHTWARDS ARROW}") == (
        "two\nlines and blanks, \u00fc \N{RIGHTWARDS ARROW}"
    )
    assert printable("\udc80").isprintable()


def test_no_text_of_a_grade_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    reason = f"{HOSTILE} is not it"
    task = TaskGrade(task="t", title="T", points=0, max_points=1, status="lost", reason=reason)
    grade = Grade(
        file=f"{HOSTILE}.zip",
        lab="l",
        student=HOSTILE,
        submitted=HOSTILE,
        tasks=(task,),
        remarks=(HOSTILE,),
    )
    grades = [grade, Grade(file=HOSTILE, error=HOSTILE)]
    _print_grades(grades, with_remarks=True)
    written = "".join(capsys.readouterr()) + to_csv([grade])
    assert SHOWN in written
    assert not [c for c in written if c != "\n" and not c.isprintable()]
    assert json.loads(to_gradescope(grade))["tests"][0]["output"] == f"{SHOWN} is not it"


def test_an_error_about_an_answer_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(str(InputError.of("answers.yaml:3", HOSTILE, "one of a, b")))
    assert SHOWN in (said := capsys.readouterr().err)
    assert "\x1b" not in said
