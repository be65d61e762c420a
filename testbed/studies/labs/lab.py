"""A lab as data: the content of its `lab.yaml`."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from testbed.model.errors import RefusedValueError
from testbed.model.fabric.topology import NAME_PATTERN
from testbed.model.part import ByKind, Part
from testbed.studies.labs.quantities import Tolerance, parse_tolerance

FORMAT_VERSION = 1
"""The version of `lab.yaml` that this code reads."""

HINTS = 3
"""Hints of each task that is graded by its answer."""

Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class NumberAnswer(Part):
    """A number with its unit."""

    kind: Literal["number"]
    unit: str = Field(description="the unit, such as RTT, ms, %, packets")
    within: Annotated[Tolerance, BeforeValidator(parse_tolerance)] = Field(
        default=Tolerance(0.05, relative=True),
        description="how far the answer may be from the figure: 5%, or a number in the unit",
    )


class ChoiceAnswer(Part):
    """One of several options, named by its key."""

    kind: Literal["choice"]
    options: dict[str, str] = Field(min_length=2, description="each option's text by its key")


class NamesAnswer(Part):
    """Several names: links, paths, nodes."""

    kind: Literal["names"]
    of: str = Field(default="names", description="what they name, in the plural")
    like: str = Field(default="", description="one of them, or a similar one, as an example")
    form: str = Field(
        default="", description="their form as a regular expression; without it that of like"
    )
    ordered: bool = Field(default=False, strict=True, description="whether their order counts")

    def has_form(self, name: str) -> bool:
        """Whether a name looks like one of these; every name does if no example is given."""
        if not self.like:
            return True
        form = self.form or re.sub(r"\d+", r"\\d+", re.escape(self.like))
        return re.fullmatch(form, name) is not None


class AddressAnswer(Part):
    """An IPv6 address, in any spelling."""

    kind: Literal["address"]


class TextAnswer(Part):
    """Some sentences; they quote figures of the student's own runs."""

    kind: Literal["text"]
    words: int = Field(default=20, ge=1, strict=True, description="the fewest words")


class ScoreAnswer(Part):
    """No answer to write: a figure of the run that the student's own code has made.

    It passes if the figure keeps the bound.
    """

    kind: Literal["score"]
    unit: str = Field(default="", description="the unit of the bound")
    at_most: float | None = Field(default=None, description="the largest value allowed")
    at_least: float | None = Field(default=None, description="the smallest value allowed")

    @model_validator(mode="after")
    def _has_one_bound(self) -> Self:
        if (self.at_most is None) == (self.at_least is None):
            raise RefusedValueError("one of at_most and at_least")
        return self


Answer = Annotated[
    NumberAnswer | ChoiceAnswer | NamesAnswer | AddressAnswer | TextAnswer | ScoreAnswer, ByKind()
]


class StudentFigure(Part):
    """A figure of the student's own: a declared metric of a run, or a function of `figures.py`."""

    name: str = Field(
        description="SCOPE.METRIC, such as faults.stall_rtt, or the name of a function"
    )
    run: str = Field(default="", description="the run that a metric is of")
    called: str = Field(default="", description="what messages call it; by default its name")

    @property
    def is_metric(self) -> bool:
        """Whether it is a metric by its name in `summary.json`."""
        return "." in self.name


class Mistake(Part):
    """A wrong answer that many give, and what to say to it."""

    equals: Any = Field(default=None, description="the answer itself")
    figure: StudentFigure | None = Field(
        default=None, description="the answer is this figure instead"
    )
    above: StudentFigure | None = Field(
        default=None, description="the answer is more than this figure"
    )
    below: StudentFigure | None = Field(
        default=None, description="the answer is less than this figure"
    )
    because: str = Field(description="what is wrong; {answer} and {figure} stand for the values")

    @model_validator(mode="after")
    def _has_one_condition(self) -> Self:
        conditions = (self.equals, self.figure, self.above, self.below)
        if sum(condition is not None for condition in conditions) != 1:
            raise RefusedValueError("one of equals, figure, above and below")
        return self


class Task(Part):
    """One step of a lab: a prediction before a run, or a question."""

    id: Name
    title: str
    question: str
    points: int = Field(ge=0, strict=True)
    answer: Answer
    before: str = Field(default="", description="the run that this predicts")
    after: tuple[str, ...] = Field(default=(), description="the runs that it needs")
    together: tuple[str, ...] = Field(
        default=(), description="other scores without which this one does not pass"
    )
    figure: StudentFigure | None = Field(default=None, description="the right answer, from a run")
    expected: Any = Field(default=None, description="the right answer, equal for all students")
    quotes: tuple[StudentFigure, ...] = Field(
        default=(), description="figures that a text has to quote"
    )
    look: str = Field(default="", description="where to look when the answer is wrong")
    mistakes: tuple[Mistake, ...] = ()
    hints: tuple[str, ...] = ()
    explanation: str = ""

    @property
    def is_prediction(self) -> bool:
        """Whether it is answered before its run, by `testbed lab predict`."""
        return bool(self.before)

    @property
    def is_score(self) -> bool:
        """Whether the student's code is judged, and no answer is written."""
        return isinstance(self.answer, ScoreAnswer)

    @property
    def figures(self) -> tuple[StudentFigure, ...]:
        """All figures that its check looks at."""
        mistaken = ((m.figure, m.above, m.below) for m in self.mistakes)
        named = (self.figure, *self.quotes, *(figure for group in mistaken for figure in group))
        return tuple(figure for figure in named if figure is not None)

    @model_validator(mode="after")
    def _can_be_checked(self) -> Self:
        if self.is_prediction:
            return self
        if len(self.hints) != HINTS:
            raise RefusedValueError(f"{HINTS} hints", key="hints")
        if not self.explanation:
            raise RefusedValueError("an explanation, shown after success", key="explanation")
        if isinstance(self.answer, TextAnswer):
            if not self.quotes:
                raise RefusedValueError("figures that the text has to quote", key="quotes")
        elif (self.figure is None) == (self.expected is None):
            raise RefusedValueError("a figure, or an expected value")
        return self


class LabRun(Part):
    """A run that students make, with their own seed."""

    scenario: str = Field(description="a file of the lab, or a scenario that ships")
    title: str = ""
    set: dict[str, Any] = Field(
        default_factory=dict, description="values by key path; {name} stands for what is drawn"
    )
    code: dict[str, str] = Field(
        default_factory=dict,
        description="classes that the student writes, FILE.py:CLASS, by key path",
    )
    hidden: bool = Field(
        default=False, strict=True, description="whether its faults are to be found"
    )

    @property
    def code_files(self) -> list[str]:
        """The files of the classes that the student writes, sorted."""
        return sorted({reference.rpartition(":")[0] for reference in self.code.values()})


class Computed(Part):
    """A value that a function of `figures.py` computes from those that were drawn before."""

    call: str


class Lab(Part):
    """A lab."""

    format_version: Literal[1]
    title: str
    minutes: int = Field(ge=5, le=120, strict=True)
    goals: tuple[str, ...] = Field(min_length=1)
    draw: dict[str, str | tuple[Any, ...] | Computed] = Field(
        default_factory=dict,
        description="what the student's seed decides: a list to draw from, or a text in which "
        "{name} stands for what was drawn before, or {call: function} of figures.py",
    )
    runs: dict[Name, LabRun] = Field(default_factory=dict)
    tasks: tuple[Task, ...] = Field(min_length=1)

    known_code: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="by file, digests of solutions: code that equals one has a remark in grading",
    )

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def questions(self) -> tuple[Task, ...]:
        """The tasks that are answered in `answers.yaml`."""
        return tuple(task for task in self.tasks if not task.is_prediction)

    def predictions(self, run: str) -> tuple[Task, ...]:
        return tuple(task for task in self.tasks if task.before == run)

    def task(self, name: str) -> Task | None:
        return next((task for task in self.tasks if task.id == name), None)
