"""Grades: what a submission and each of its tasks earned, and why."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Status = Literal["earned", "lost", "unknown"]


class TaskGrade(BaseModel):
    """The grade of a task.

    Attributes:
        task: its id.
        title: its title.
        points: what it earned.
        max_points: what it can earn.
        status: unknown: a run cannot be trusted, so the points are given.
        reason: why points were lost, or are given.
    """

    model_config = ConfigDict(frozen=True)

    task: str
    title: str
    points: int
    max_points: int
    status: Status
    reason: str = ""


class Grade(BaseModel):
    """The grade of a submission.

    Attributes:
        file: the submission's.
        lab: its lab; empty if it could not be read.
        student: whose it is.
        submitted: when the student last worked on it, in UTC.
        tasks: the grade of each task.
        remarks: what differs from an honest submission, and what a person should look at.
        error: why it could not be graded; empty if it was.
        cpu_s: CPU time of grading, with that of the student's code.
        confined: what was taken from the processes in which the student's code ran.
    """

    model_config = ConfigDict(frozen=True)

    file: str
    lab: str = ""
    student: str = ""
    submitted: str = ""
    tasks: tuple[TaskGrade, ...] = ()
    remarks: tuple[str, ...] = ()
    error: str = ""
    cpu_s: float = 0.0
    confined: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        """The points that it earned."""
        return sum(task.points for task in self.tasks)

    @property
    def max_points(self) -> int:
        """The points that it can earn."""
        return sum(task.max_points for task in self.tasks)
