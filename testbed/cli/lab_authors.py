"""`testbed lab test` and others: for those who write labs."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.screen import showing_progress, stdout
from testbed.model.errors import ExitStatus


def try_labs(
    labs: Annotated[
        list[str] | None, typer.Argument(metavar="LAB...", help="The labs; without any all.")
    ] = None,
    students: Annotated[int, typer.Option(min=1, help="For how many students.")] = 5,
) -> None:
    """Test labs: starters fail every graded task, solutions pass, texts match. For authors.

    Exit status: 0 all is well, 1 a lab is wrong, 2 wrong input.
    """
    from tempfile import TemporaryDirectory

    from testbed.labs.authoring import try_lab
    from testbed.labs.library import find_lab, lab_directories, load_lab

    paths = [find_lab(name) for name in labs] if labs else lab_directories()
    failed = False
    for path in paths:
        directory = load_lab(path)
        with TemporaryDirectory(prefix="testbed-lab-") as scratch, showing_progress() as progress:
            findings = try_lab(directory, Path(scratch), students, progress)
        for finding in findings:
            stdout().print(f"{directory.name}: {finding}")
        if not findings:
            stdout().print(f"{directory.name}: {students} students, all well")
        failed = failed or bool(findings)
    if failed:
        raise typer.Exit(ExitStatus.FAILED)
