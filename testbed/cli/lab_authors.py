"""`testbed lab new`, `test`, `keys`: for those who write labs and who teach."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import Json
from testbed.cli.screen import print_json, showing_progress, stdout
from testbed.model.errors import ExitStatus


def try_labs(
    labs: Annotated[
        list[str] | None, typer.Argument(metavar="LAB...", help="The labs; without any all.")
    ] = None,
    students: Annotated[int, typer.Option(min=1, help="For how many students.")] = 5,
) -> None:
    """Test labs: starter code must fail, solutions pass, and texts be consistent. For authors.

    Exit status: 0 all is well, 1 a lab is wrong, 2 wrong input.
    """
    from testbed.results.scratch import scratch
    from testbed.studies.labs.authoring import try_lab
    from testbed.studies.labs.library import find_lab, lab_directories, load_lab

    paths = [find_lab(name) for name in labs] if labs else lab_directories()
    failed = False
    for path in paths:
        directory = load_lab(path)
        with scratch("testbed-lab-") as place, showing_progress() as progress:
            findings = try_lab(directory, place, students, progress)
        for finding in findings:
            stdout().print(f"{directory.name}: {finding}")
        if not findings:
            stdout().print(f"{directory.name}: {students} students, all well")
        failed = failed or bool(findings)
    if failed:
        raise typer.Exit(ExitStatus.FAILED)


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Number and name: 12-my-lab.")],
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where; among the labs by default.")
    ] = None,
) -> None:
    """Make a lab to begin with: small, complete, and passing its test. For authors."""
    from testbed.studies.labs.authoring import new_lab
    from testbed.studies.labs.library import LABS

    path = new_lab(name, into or LABS)
    stdout().print(f"{path}\nnext: testbed lab test {path}")


def keys(
    course_key: Annotated[
        Path, typer.Argument(metavar="COURSE_KEY", help="The file of the course key.")
    ],
    students: Annotated[list[str], typer.Argument(metavar="STUDENT...", help="Their names.")],
    as_json: Json = False,
) -> None:
    """Print the key of each student, for testbed lab start. For instructors."""
    from testbed.studies.labs.students import checked_name, read_course_key, student_key

    secret = read_course_key(course_key)
    table = {name: student_key(secret, checked_name("STUDENT", name)) for name in students}
    if as_json:
        print_json(table)
        return
    for student, key in table.items():
        stdout().print(f"{student} {key}")
