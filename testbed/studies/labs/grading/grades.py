"""Grades: what a submission and each of its tasks earned, and why."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from testbed.model.errors import printable

MAX_TEXT = 2000
"""Characters of a text in a grade."""


def _bounded(text: str) -> str:
    shown = printable(text[: MAX_TEXT + 1])
    return shown if len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}..."


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


Text = Annotated[str, AfterValidator(_bounded)]
"""A text that may quote what a student wrote: it is printed and written as it is."""

Line = Annotated[Text, AfterValidator(_on_one_line)]
"""The same on one line: what stands in a list or in a cell of a table."""

AGAIN = "Not graded, to be handed in again."
"""What is said of a submission that cannot be judged."""

NOT_HERE = "Not graded, for a reason of the machine: grade it again."
"""What is said of one for which the machine lacks something."""

Status = Literal["earned", "lost"]


class TaskGrade(BaseModel):
    """The grade of a task.

    Attributes:
        task: its id.
        title: its title.
        points: what it earned.
        max_points: what it can earn.
        status: whether the points were earned.
        reason: why they were lost.
    """

    model_config = ConfigDict(frozen=True)

    task: Line
    title: Line
    points: int
    max_points: int
    status: Status
    reason: Line = ""


class Grade(BaseModel):
    """The grade of a submission.

    Attributes:
        file: the submission's.
        lab: its lab; empty if it could not be read.
        student: whose it is.
        submitted: when the student last worked on it, in UTC.
        tasks: the grade of each task.
        remarks: for instructors alone: what a person should look at.
        error: why it could not be graded and has to be handed in again; empty if it was graded.
        by_machine: whether that is a matter of the machine, so that nothing has to be handed in.
        cpu_s: CPU time of grading, with that of the student's code.
        confined: what was taken from the processes in which the student's code ran.
        unlimited: whether the student's code ran within the process that grades: on Windows.
        prints: digests of what no two students have alike, by what it is.
        right_key: whether it was made with the key of its student, as far as that is known.
        superseded: whether the same student has handed in this lab again later.
    """

    model_config = ConfigDict(frozen=True)

    file: Line
    lab: Line = ""
    student: Line = ""
    submitted: Line = ""
    tasks: tuple[TaskGrade, ...] = ()
    remarks: tuple[Line, ...] = ()
    error: Text = ""
    by_machine: bool = False
    cpu_s: float = 0.0
    confined: tuple[Text, ...] = ()
    unlimited: bool = False
    prints: dict[Text, str] = {}
    right_key: bool = True
    superseded: bool = False

    @property
    def ungraded(self) -> str:
        """What to do about a submission that was not graded; empty if it was."""
        return (NOT_HERE if self.by_machine else AGAIN) if self.error else ""

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def confinement_in_words(self) -> str:
        """How the student's code ran; empty if none did."""
        if self.unlimited:
            return "without limits, in the process that grades: this system has none"
        return f"with {'; '.join(self.confined)}" if self.confined else ""

    @property
    def max_points(self) -> int:
        return sum(task.max_points for task in self.tasks)
