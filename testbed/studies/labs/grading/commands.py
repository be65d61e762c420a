"""`testbed lab grade`, `autograder`, `new`, `test`, `keys`: for who teaches and writes labs."""

import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json, On
from testbed.cli.screen import (
    plain_table,
    print_json,
    print_table,
    print_warning,
    showing_progress,
    stdout,
)
from testbed.model.errors import ExitStatus, InputError, MachineError, few
from testbed.model.file_names import is_there
from testbed.results.whole_file import writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from testbed.studies.labs.grading.grades import Grade

CourseKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The course key; without it keys are not checked."),
]


def grade(
    submissions: Annotated[
        list[Path],
        typer.Argument(metavar="SUBMISSION...", help="Files, or directories with many."),
    ],
    course_key: CourseKey = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write CSV with nbgrader's columns.")
    ] = None,
    gradescope: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write results.json, of one submission.")
    ] = None,
    classroom50: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write result.json, of one submission.")
    ] = None,
    lab: Annotated[
        str | None,
        typer.Option(metavar="LAB", help="Grade this lab only: submissions of others are refused."),
    ] = None,
    metadata: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Gradescope's submission_metadata.json: says if a submission is of another user.",
        ),
    ] = None,
    labs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The directory with the labs; default: those of the testbed."
        ),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep grades here, and take them from here.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="How many at a time; default: as CPUs and memory allow."),
    ] = None,
    on: On = None,
    as_json: Json = False,
) -> None:
    """Grade submissions: runs are simulated again, figures computed again. For instructors.

    Exit status: 0 all were graded, whatever their points; 1 some could not be; 2 wrong input; 3
    the machine lacks something for some.
    """
    from testbed.limits import simulations_at_once
    from testbed.results.whole_file import temporary_directory
    from testbed.runs.places import pool_at
    from testbed.studies.labs.grading.course import Course, grade_all
    from testbed.studies.labs.grading.formats import (
        submitted_by,
        to_classroom50,
        to_csv,
        to_gradescope,
    )
    from testbed.studies.labs.grading.identity import remark_on_owner, remark_on_users
    from testbed.studies.labs.library import LABS, find_lab, lab_directories
    from testbed.studies.labs.students import read_course_key

    key = None if course_key is None else read_course_key(course_key)
    kept = None if cache is None else _cache(cache)
    files = {"--csv": csv, "--gradescope": gradescope, "--classroom50": classroom50}
    _require_places(files)
    if on is None:
        temporary_directory()
    directory = labs or LABS
    if not lab_directories(directory):
        raise InputError.of("--labs", str(labs), "a directory with labs, such as 01-mine/lab.yaml")
    only = "" if lab is None else find_lab(lab, directory).name
    course = Course(key, directory, cache=kept, jobs=jobs or simulations_at_once(), lab=only)
    submitted = None if classroom50 is None else submitted_by(os.environ)
    paths = _handed_in(submissions, gradescope, classroom50)
    shared = kept or paths[0].resolve().parent
    with pool_at(on, f"grading of {paths[0]}", shared) as pool, showing_progress() as progress:
        grades = grade_all(paths, course, progress, pool, print_warning)
    if metadata is not None:
        grades = [_with_remark(of, remark_on_users(of.student, metadata)) for of in grades]
    result = "" if submitted is None else to_classroom50(grades[0], submitted)
    if submitted is not None:
        grades = [_with_remark(of, remark_on_owner(of.student, submitted.owner)) for of in grades]
    contents = to_csv(grades), to_gradescope(grades[0]), result
    refused = _write(files, contents)  # raised when the grades are on the screen
    if as_json:
        print_json([grade.model_dump() for grade in grades])
    else:
        _print_grades(grades, with_remarks=classroom50 is None)  # its log is the student's
    if refused is not None:
        raise refused
    if status := _status(grades):
        raise typer.Exit(status)


def _status(grades: "list[Grade]") -> ExitStatus:
    if any(grade.by_machine for grade in grades):
        return ExitStatus.MACHINE_CANNOT
    failed = any(grade.error for grade in grades)
    return ExitStatus.FAILED if failed else ExitStatus.AS_EXPECTED


def _require_places(files: "Mapping[str, Path | None]") -> None:
    """Check now that files can be made, as grading may take an hour.

    Args:
        files: the file of each option; None: it is not given.

    Raises:
        InputError: one cannot be.
    """
    for option, file in files.items():
        if file is not None and not is_there(file):
            with writing(option, file):
                TemporaryFile(dir=file.parent).close()


def _write(
    files: "Mapping[str, Path | None]", contents: "Iterable[str]"
) -> InputError | MachineError | None:
    """Write the file of each option that is given; returns the first error."""
    refused = None
    for (option, file), content in zip(files.items(), contents, strict=True):
        if file is None:
            continue
        try:
            with writing(option, file):
                file.write_text(content, encoding="utf-8")
        except (InputError, MachineError) as error:
            refused = refused or error
    return refused


def _cache(directory: Path) -> Path:
    """The directory of kept grades.

    Raises:
        InputError: it cannot be written to.
    """
    with writing("--cache", directory, "a directory to write to"):
        directory.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=directory).close()
    return directory.resolve()


def _handed_in(
    submissions: list[Path], gradescope: Path | None, classroom50: Path | None
) -> list[Path]:
    """The submissions; for Gradescope, a wrong one is a result that tells the student why.

    Raises:
        InputError: there is none, or there are several where one is expected.
    """
    from testbed.studies.labs.grading.course import submissions_in
    from testbed.studies.labs.grading.formats import to_gradescope
    from testbed.studies.labs.grading.grades import Grade

    try:
        paths = submissions_in(submissions)
        for option, file in (("--gradescope", gradescope), ("--classroom50", classroom50)):
            if file is not None and len(paths) > 1:
                found = f"{len(paths)} submissions ({few([path.name for path in paths])})"
                remedy = "hand in one file: the one that testbed lab submit made last"
                raise InputError.of(option, found, "one submission", remedy)
    except InputError as error:
        if gradescope is not None:
            with writing("--gradescope", gradescope):
                gradescope.write_text(
                    to_gradescope(Grade(file="", error=str(error))), encoding="utf-8"
                )
        raise
    return paths


def _with_remark(grade: "Grade", remark: str) -> "Grade":
    """A grade with one more remark, if there is one and the submission says what it is."""
    if not grade.lab or not remark:
        return grade
    return grade.model_copy(update={"remarks": (*grade.remarks, remark)})


def _print_grades(grades: "list[Grade]", *, with_remarks: bool) -> None:
    """A table of each student's points, then the reason for each point that was lost."""
    columns = ("student", "lab", "points", "file", "remarks" if with_remarks else "")
    table = plain_table(*columns)
    for grade in grades:
        points = f"{grade.points} of {grade.max_points}"
        if grade.error:
            points = "not graded" if grade.by_machine else "hand in again"
        number = str(len(grade.remarks) or "") if with_remarks else ""
        table.add_row(grade.student or "-", grade.lab, points, grade.file, number)
    print_table(table)
    console = stdout()
    for grade in grades:
        lost = [task for task in grade.tasks if task.reason]
        remarks = grade.remarks if with_remarks else ()
        if not lost and not remarks and not grade.error:
            continue
        console.print(f"\n{grade.student or grade.file}", style="bold")
        for remark in remarks:
            console.print(f"  ! {remark}")
        if grade.error:
            console.print(f"  {grade.ungraded} {grade.error}")
        for task in lost:
            console.print(f"  {task.task}: {task.points} of {task.max_points}: {task.reason}")
    for words in dict.fromkeys(filter(None, (grade.confinement_in_words for grade in grades))):
        console.print(f"\nStudents' code ran {words}.")
    if any(grade.unlimited for grade in grades):
        console.print("  remedy: grade in a container or a virtual machine with Linux")


def autograder(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write, a zip.")],
    lab: Annotated[str, typer.Option(metavar="LAB", help="The lab that it grades, and no other.")],
    wheel: Annotated[Path, typer.Option(metavar="FILE", help="The testbed's wheel.")],
    course_key: CourseKey = None,
) -> None:
    """Make the archive with which Gradescope grades one lab. For instructors."""
    from testbed.studies.labs.grading.formats import write_autograder
    from testbed.studies.labs.library import find_lab
    from testbed.studies.labs.students import read_course_key

    key = None if course_key is None else read_course_key(course_key)
    name = find_lab(lab).name
    with writing("FILE", archive):
        write_autograder(archive, name, wheel, key)
    stdout().print(f"upload {archive} to the assignment of lab {name} at Gradescope")


def try_labs(
    labs: Annotated[
        list[str] | None, typer.Argument(metavar="LAB...", help="The labs; without any all.")
    ] = None,
    students: Annotated[int, typer.Option(min=1, help="For how many students.")] = 5,
) -> None:
    """Test labs: starter code must fail, solutions pass, and texts be consistent. For authors.

    Exit status: 0 all is well, 1 a lab is wrong, 2 wrong input.
    """
    from testbed.results.whole_file import scratch
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
