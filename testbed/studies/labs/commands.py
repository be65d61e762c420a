"""`testbed lab`: labs that teach, check and grade."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json, NoFigures, RunForm
from testbed.cli.screen import (
    ending_in_words,
    plain_table,
    print_json,
    print_table,
    showing_progress,
    stdout,
)
from testbed.model.errors import ExitStatus, InputError, printable
from testbed.studies.labs.grading.commands import autograder, grade, keys, new, try_labs

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.studies.labs.checking import CheckResult
    from testbed.studies.labs.lab import Task
    from testbed.studies.labs.work import Work


LabName = Annotated[
    str | None,
    typer.Argument(metavar="LAB", help="A lab's number, name or directory: 2, first-failure."),
]
TaskName = Annotated[
    str | None, typer.Argument(metavar="TASK", help="A task's name, as in the handout.")
]
TaskNames = Annotated[
    list[str] | None, typer.Argument(metavar="TASK...", help="Names of tasks; without any all.")
]


def register(command_line: typer.Typer) -> None:
    """Add `lab` and its subcommands."""
    app = typer.Typer(
        help="Labs: predict, run, explain. Without root.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    every: tuple[Callable[..., None], ...] = (
        *(list_, start, run, table),
        *(check, hint, status, submit),
        *(grade, keys, autograder, new),
    )
    for command in every:
        app.command(command.__name__.strip("_"))(command)
    app.command("test")(try_labs)
    # What looks like an option may be a negative number: `-2 RTT`.
    app.command("predict", context_settings={"ignore_unknown_options": True})(predict)
    command_line.add_typer(app, name="lab", rich_help_panel="Learn")


def list_(as_json: Json = False) -> None:
    """List the labs."""
    from testbed.studies.labs.library import lab_directories, load_lab

    labs = [load_lab(path) for path in lab_directories()]
    if as_json:
        print_json(
            [
                {"name": entry.name, **entry.lab.model_dump(include={"title", "minutes", "goals"})}
                for entry in labs
            ]
        )
        return
    table = plain_table("lab", "title", "minutes", "points")
    for entry in labs:
        lab = entry.lab
        table.add_row(entry.name, lab.title, str(lab.minutes), str(lab.points))
    print_table(table)
    stdout().print(
        "\nBegin one: testbed lab start 1\n"
        "In a course:  testbed lab start 1 --student NAME --key KEY, as your instructor gave them"
    )


def start(
    lab: LabName = None,
    student: Annotated[
        str,
        typer.Option(metavar="NAME", help="Your name in the course, as your instructor knows it."),
    ] = "",
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The key that your instructor gave you.")
    ] = None,
    into: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory in which the lab's is made.")
    ] = Path(),
    reset: Annotated[
        bool,
        typer.Option("--reset", help="Begin again, with the same name and key; your work is kept."),
    ] = False,
) -> None:
    """Make a directory for your work on a lab.

    It has the handout, a file for your answers and what else you need. In a course, give your name
    and key with the first lab; labs beside it take them over. Without a key the lab draws its own
    numbers for you, and nobody can grade it.
    """
    from testbed.studies.labs.library import HANDOUT, find_lab, load_lab
    from testbed.studies.labs.students import checked_key, checked_name
    from testbed.studies.labs.work import JOURNAL, STATE, begun_by, set_aside
    from testbed.studies.labs.work import start as start_work

    if lab is None:
        raise InputError.of("LAB", "nothing", "the number of a lab", "testbed lab list shows all")
    directory = load_lab(find_lab(lab))
    if (key is None) != (not student):
        expected = "both --student and --key, or none of them"
        remedy = "your instructor gives you both; without a course leave them out"
        raise InputError.of("--key" if key is None else "--student", "nothing", expected, remedy)
    checked = None if key is None else checked_key(key, checked_name("--student", student))
    console, path = stdout(), into / directory.name
    if (Path(STATE) / JOURNAL).is_file():
        raise InputError.of("LAB", str(Path.cwd()), "a directory outside a lab", "cd ..")
    if reset and (path / STATE).is_dir():
        begun = begun_by(path)
        if checked is None and begun is not None:
            student, checked = begun
    if not student:
        student, checked = _student_beside(into) or ("", checked)
    if reset and (path / STATE).is_dir():
        console.print(f"your work so far: {set_aside(path)}")
    work = start_work(directory, into, student, checked)
    console.print(f"{directory.lab.title}: {directory.lab.minutes} minutes", style="bold")
    for goal in directory.lab.goals:
        console.print(f"  - {goal}")
    if student:
        console.print(f"\nfor {student}, with the key {work.start.content['key']}")
    else:
        console.print(
            "\nBegun without a name and a key, to learn alone: nobody can grade it. In a course: "
            f"testbed lab start {lab} --reset --student NAME --key KEY",
            style="yellow",
        )
    console.print(f"\ncd {work.path}\nread {HANDOUT}")
    console.print(f"first step: {next_step(work)}")


def _student_beside(parent: Path) -> tuple[str, str] | None:
    """The name and key with which the labs in a directory were begun; None if there are none.

    Raises:
        InputError: there are several.
    """
    from testbed.studies.labs.work import students_beside

    begun = students_beside(parent)
    if len(begun) > 1:
        found = ", ".join(f"{path.name} of {student}" for (student, _), path in begun.items())
        remedy = "give --student and --key, or another directory: --into DIR"
        raise InputError.of("--student", f"nothing beside {found}", "the name and the key", remedy)
    for identity, path in begun.items():
        stdout().print(f"with the name and the key of {path}")
        return identity
    return None


def predict(
    task: TaskName = None,
    value: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="What you expect, such as 1.5 RTT, or an option."),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(metavar="TOLERANCE", help='How far off you may be: "0.5 RTT", 20%.'),
    ] = None,
) -> None:
    """Say what a run will show, before it is made; without a value it shows the question."""
    from testbed.studies.labs.predicting import predict as predict_task
    from testbed.studies.labs.predicting import show_prediction

    work = work_here()
    asked = work.task(task, predictions=True)
    for word in value or []:
        if word.startswith("--"):
            raise InputError.of(word, "", "the option --within, or none")
    console = stdout()
    if within is not None and not value:
        remedy = f"testbed lab predict {asked.id} VALUE --within {within}"
        raise InputError.of("--within", within, "a prediction before it", remedy)
    if not value:
        _print_question(work, asked)
        made = work.last("prediction", task=asked.id)
        if made is not None:
            console.print(f"you predicted: {show_prediction(asked, made)}")
        return
    entry = predict_task(work, asked, " ".join(value), within)
    console.print(f"predicted, {entry.time[:19]}Z: {show_prediction(asked, entry)}")
    if "within" in entry.content and within is None:
        console.print("  (within: how far off it may be to count as right; --within changes it)")
    console.print(f"next: {next_step(work)}")


def run(
    name: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run's name; without it the next one.")
    ] = None,
    no_figures: NoFigures = False,
    form: Annotated[
        RunForm,
        typer.Option(
            "--form", help="Emulated: with real packets (root), to look at; simulated runs count."
        ),
    ] = "simulated",
    slower: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=10,
            metavar="FACTOR",
            help="With --form emulated: all times so many times longer.",
        ),
    ] = None,
) -> None:
    """Simulate a run of the lab with your seed.

    Make the predictions for the run before it. Exit status: 0 it counts, 2 wrong input, 4 it cannot
    be trusted and does not count: run again.
    """
    from testbed.cli.summary import show
    from testbed.runs.making import naming_how_to_resume, signals_stop
    from testbed.studies.labs.predicting import outcomes
    from testbed.studies.labs.runs import checked_run, emulate_run, make_run

    work = work_here()
    name = checked_run(work, name)
    emulated = form == "emulated"
    if slower is not None and not emulated:
        remedy = "leave --slower out: a simulated run does not depend on the machine"
        raise InputError.of("--slower", f"{slower:g}", "it with --form emulated", remedy)
    drawn, factor = not no_figures, slower or 1.0
    with (
        ending_in_words(),
        naming_how_to_resume("the same command makes the run; nothing is kept"),
        signals_stop(),
        showing_progress() as progress,
    ):
        if emulated:
            made = emulate_run(work, name, progress, drawn=drawn, slower=factor)
        else:
            made = make_run(work, name, progress, drawn=drawn)
    console = stdout()
    if factor != 1:
        console.print(f"All times of this run are {factor:g} times those of the handout.")
    if made.hidden:
        console.print(f"{name}: done. What hosts could see is in {made.directory.path}")
        for reason in made.reasons:
            console.print(f"  {reason}")
    else:
        show(made.summary, made.directory, console, drawn=drawn)
    trusted = made.summary.verdict == "trusted"
    if emulated:
        again = "" if trusted else " It cannot be trusted: make it again, or with --slower 2."
        console.print(
            f"This run is to look at.{again} Answers and points are about the simulated run."
        )
    elif not trusted:
        console.print(
            "This run does not count and costs you nothing. It would end like this again: a "
            "simulated run does not depend on the machine. Change your code."
        )
    if not trusted:
        raise typer.Exit(ExitStatus.UNTRUSTED)
    for said in [] if made.hidden or emulated else outcomes(work, name):
        console.print(said, style="bold")
    console.print(f"next: {next_step(work)}")


def check(tasks: TaskNames = None) -> None:
    """Check your answers in order, up to the first that is wrong.

    Exit status: 0 all is right, 1 an answer is wrong or missing, 2 an answer cannot be read.
    """
    from testbed.studies.labs.checking import check as check_task
    from testbed.studies.labs.predicting import attempts, hints
    from testbed.studies.labs.runs import unseal

    work = work_here()
    chosen = [work.task(task, predictions=False) for task in tasks or []]
    document, evidence = work.read_answers(), work.evidence()
    for question in chosen or work.assignment.directory.lab.questions:
        result = check_task(question, document, evidence, attempts=attempts(work, question))
        known = not tasks and work.passed(question)
        opened = len(hints(work, question).shown)
        _record(work, result)
        _print_result(work, result, explained=not known, hints_before=opened)
        for directory in unseal(work):
            stdout().print(f"all files of the run: {directory}")
        if result.missing:
            stdout().print(f"next: {next_step(work)}")
        if not result.passed:
            raise typer.Exit(ExitStatus.FAILED)
    stdout().print(f"next: {next_step(work)}")


def hint(task: TaskName = None) -> None:
    """Show the hints of a task.

    One more is shown after each wrong attempt, and all after success.
    """
    from testbed.studies.labs.predicting import hints

    work = work_here()
    asked = work.task(task, predictions=False)
    known = hints(work, asked)
    console = stdout()
    for number, text in enumerate(known.shown, 1):
        console.print(f"hint {number} of {known.total}: {text}")
    if known.passed:
        console.print(f"explanation: {work.assignment.text(asked.explanation)}")
        return
    if known.shown:
        work.journal.append("hint", task=asked.id, number=len(known.shown))
    if len(known.shown) < known.total:
        when = "the next hint opens after another wrong answer"
        if not known.shown:
            when = "the first hint opens after a wrong answer"
        console.print(f"{when}: testbed lab check {asked.id}")


def status(as_json: Json = False) -> None:
    """Show what is done and what is next."""
    from testbed.studies.labs.predicting import attempts, hints_read
    from testbed.studies.labs.quantities import counted

    work = work_here()
    rows = [
        {
            "task": task.id,
            "title": task.title,
            "points": task.points,
            "state": state(work, task),
            "attempts": attempts(work, task),
            "hints": hints_read(work, task),
        }
        for task in work.tasks
    ]
    if as_json:
        print_json({"lab": work.assignment.directory.name, "tasks": rows, "next": next_step(work)})
        return
    table = plain_table("task", "title", "points", "state", "hints read")
    for task, row in zip(work.tasks, rows, strict=True):
        tries = f", {counted(tried, 'wrong answer')}" if (tried := attempts(work, task)) else ""
        table.add_row(
            str(row["task"]),
            str(row["title"]),
            str(row["points"]),
            f"{row['state']}{tries}",
            str(row["hints"] or ""),
        )
    print_table(table)
    points = sum(task.points for task in work.tasks if is_done(work, task))
    stdout().print(f"{points} of {work.assignment.directory.lab.points} points so far")
    stdout().print(f"next: {next_step(work)}")


def submit(
    into: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the file is made; here by default.")
    ] = Path(),
) -> None:
    """Make the file to hand in.

    It has your answers, your predictions and the records of your runs.

    Exit status: 0 it can be graded, 1 the file is made, but it could not be graded as it is.
    """
    from testbed.studies.labs.grading.submission import not_gradable, notes
    from testbed.studies.labs.grading.submission import submit as submit_work

    work = work_here()
    path, console = submit_work(work, into), stdout()
    for note in notes(work):
        console.print(note, style="yellow")
    left = [task.id for task in work.tasks if not is_done(work, task)]
    if left:
        console.print(f"not done yet: {', '.join(left)}")
    reasons = not_gradable(work)
    for reason in reasons:
        console.print(f"{path.name} cannot be graded as it is: {reason}", style="yellow")
    if reasons:
        raise typer.Exit(ExitStatus.FAILED)
    console.print(f"hand in: {path}")


# --- shared -----------------------------------------------------------------------------------


def _print_question(work: "Work", task: "Task") -> None:
    from testbed.studies.labs.answers import form_of
    from testbed.studies.labs.lab import ChoiceAnswer

    console = stdout()
    console.print(task.title, style="bold")
    console.print(work.assignment.question(task))
    console.print(f"Answer: {form_of(task.answer)}.")
    if isinstance(task.answer, ChoiceAnswer):
        for key, text in task.answer.options.items():
            console.print(f"  {key}: {work.assignment.text(text)}")


def _record(work: "Work", result: "CheckResult") -> None:
    """Write an attempt into the journal, unless it says what the last one said of these runs."""
    if result.missing:
        return
    content = {"task": result.task.id, "answer": result.answer, "passed": result.passed}
    last = work.last("attempt", task=result.task.id)
    if last is None or last.content != content or work.is_out_of_date(result.task):
        work.journal.append("attempt", **content)


def _print_result(
    work: "Work", result: "CheckResult", *, explained: bool, hints_before: int
) -> None:
    """Print what came of checking a task, with its explanation unless that was shown before."""
    from testbed.studies.labs.predicting import hints

    console = stdout()
    if result.passed:
        value = f" ({result.answer})" if result.task.is_score else ""
        console.print(f"right: {result.task.title}{value}", style="green")
        if explained:
            console.print(f"  {work.assignment.text(result.task.explanation)}")
        return
    console.print(f"not yet: {result.task.title}", style="yellow")
    console.print(f"  {printable(result.reason)}")
    opened = len(hints(work, result.task).shown)
    if opened > hints_before:
        console.print(f"  a hint has opened: testbed lab hint {result.task.id}")
    elif opened:
        console.print(f"  testbed lab hint {result.task.id} shows your hints")


def is_done(work: "Work", task: "Task") -> bool:
    return work.passed(task) and not work.is_out_of_date(task)


def state(work: "Work", task: "Task") -> str:
    """What has become of a task, in a word or two."""
    if work.passed(task) and work.is_out_of_date(task):
        due = [run for run in task.after if work.counted_run(run) is None]
        return f"run {due[0]} again" if due else "check again"
    if work.passed(task):
        return "predicted" if task.is_prediction else "done"
    return "wrong" if work.last("attempt", task=task.id) else "open"


def next_step(work: "Work") -> str:
    """The command that comes next: tasks in order, each prediction before its run."""
    for task in work.tasks:
        if task.is_prediction:
            if work.made_run(task.before) is not None:
                continue
            return _next_before(work, task.before)
        if is_done(work, task):
            continue
        missing = next((name for name in task.after if work.counted_run(name) is None), None)
        if missing is not None:
            return _next_before(work, missing)
        if work.is_out_of_date(task):
            return f"testbed lab check {task.id}"
        if task.is_score:
            return _next_for_score(work, task)
        return f"write {task.id} in answers.yaml, then: testbed lab check {task.id}"
    return "testbed lab submit"


def _next_before(work: "Work", run: str) -> str:
    """What comes next before a run was made: its predictions, then the run."""
    for task in work.assignment.directory.lab.predictions(run):
        if not work.passed(task):
            return f"testbed lab predict {task.id}"
    return f"testbed lab run {run}"


def _next_for_score(work: "Work", task: "Task") -> str:
    """What comes next where the student's code is judged."""
    lab = work.assignment.directory.lab
    files = sorted({file for run in task.after for file in lab.runs[run].code_files})
    if work.last("attempt", task=task.id) is None:
        return f"testbed lab check {task.id}"
    steps = (f"testbed lab run {run}" for run in task.after)
    return f"change {', '.join(files)}, {', '.join(steps)}, then: testbed lab check {task.id}"


def table(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="The run's name.")] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="The table; without it all are listed.")
    ] = None,
    conditions: Annotated[
        list[str] | None, typer.Argument(metavar="COLUMN=VALUE", help="Only rows with this value.")
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Only rows from this time on: 1.5s; 0 by default."
        ),
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="Only rows up to this time.")
    ] = "",
    rows: Annotated[int, typer.Option(min=1, help="The most rows to print.")] = 40,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
) -> None:
    """Show the records of a run: packets, losses, EV events."""
    from testbed.studies.labs.quantities import counted
    from testbed.studies.labs.runs import read_table, tables_of

    work = work_here()
    console = stdout()
    if name is None:
        for known in tables_of(work, run):
            console.print(known)
        return
    begin_s, end_s = _seconds("--from", begin, 0.0), _seconds("--to", end, float("inf"))
    pairs = _pairs(conditions or [])
    frame = read_table(work, run, name, pairs, begin_s, end_s)
    if as_csv:
        print(frame.write_csv(), end="")  # noqa: T201 - neither wrapped nor coloured
        return
    shown = plain_table(*frame.columns)
    for row in frame.head(rows).iter_rows():
        shown.add_row(*(f"{cell:.6f}" if isinstance(cell, float) else str(cell) for cell in row))
    print_table(shown)
    more = f"; --rows {frame.height} or --csv shows all" if frame.height > rows else ""
    console.print(f"{counted(frame.height, 'row')}{more}")
    if not begin and (early := read_table(work, run, name, pairs, float("-inf"), 0.0).height):
        console.print(f"{counted(early, 'row')} from before the start: --from -1s shows them too")


def work_here() -> "Work":
    """The lab of the working directory, after completing copies that a crash interrupted."""
    from pathlib import Path

    from testbed.studies.labs.work import find_work

    work = find_work(Path.cwd())
    if any(run.hidden for run in work.assignment.directory.lab.runs.values()):
        from testbed.studies.labs.runs import unseal

        unseal(work)
    return work


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            remedy = "write it without blanks; a time of --from and --to, too: --from 1.5s"
            raise InputError.of("COLUMN=VALUE", word, "COLUMN=VALUE, such as flow=0", remedy)
        pairs[key] = value
    return pairs


def _seconds(option: str, text: str, default: float) -> float:
    """A time of the run in seconds; a number without unit is in seconds."""
    from testbed.model.errors import RefusedValueError
    from testbed.studies.labs.quantities import parse_number

    if not text:
        return default
    try:
        return parse_number(text if text[-1].isalpha() else f"{text} s", "s")
    except RefusedValueError as error:
        raise InputError.of(option, text, error.expected) from None
