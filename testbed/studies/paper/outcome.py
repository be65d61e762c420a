"""What became of a figure in one form: its checks, its drawing, and whether both can be trusted."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from math import inf, isinf
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from testbed.model.run_files.layout import MANIFEST
from testbed.model.summary import State
from testbed.model.summary.unit import MaybeNever
from testbed.runs.job import STATES, Form
from testbed.studies.paper.figure import NO_BOUND, Check, PaperFigure

Answer = Literal["yes", "no", "not trusted", "not run"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_FINITE = PlainSerializer(lambda bound: None if isinf(bound) else bound)


class CheckOutcome(_Model):
    """The result of a check (see `Check`); a bound that it does not have is null in JSON.

    `why_not` is why it does not hold, as far as the figure's text says so.
    """

    what: str
    measured: str
    values: tuple[MaybeNever, ...]
    low: Annotated[float, BeforeValidator(lambda low: -inf if low is None else low), _FINITE]
    high: Annotated[float, BeforeValidator(lambda high: inf if high is None else high), _FINITE]
    form: str
    bound: str
    holds: bool
    why_not: str = ""
    equal: str = ""

    @classmethod
    def of(cls, figure: PaperFigure, check: Check) -> Self:
        """The result of a check of a figure."""
        result = cls.model_validate(check, from_attributes=True)
        return result.model_copy(update={"why_not": figure.reason(check.what)})

    @property
    def is_judged(self) -> bool:
        """Whether it has bounds; else its value is only shown."""
        return self.bound != NO_BOUND

    @property
    def cause(self) -> str:
        """The cause, as far as it is known, if it does not hold."""
        known = "; ".join(filter(None, (self.equal, self.why_not)))
        return known or "unknown"


def by_cause(missed: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """What does not hold, each with its cause: a line for each cause."""
    causes: dict[str, list[str]] = {}
    for cause, what in missed:
        causes.setdefault(cause, []).append(what)
    return tuple(f"{'; '.join(of)}. Why: {cause}" for cause, of in causes.items())


class FigureRun(_Model):
    """A run of a figure.

    `attempts` is how often it was made until it could be trusted, or was given up. `expected_load`
    is the share of the CPUs that it was expected to take, null for a simulated one. `machine` is
    the kind of machine that made it, empty for a simulated one. `bytes_damaged` is the payload that
    it lost for good or corrupted.
    """

    name: str
    directory: Path
    seed: int
    dilation: float
    verdict: State
    reasons: tuple[str, ...]
    attempts: int
    expected_load: float | None
    machine: str = ""
    bytes_damaged: int = 0

    @property
    def manifest(self) -> str | None:
        """Its manifest as JSON; None if its directory is gone."""
        file = self.directory / MANIFEST
        return file.read_text(encoding="utf-8") if file.is_file() else None


class Outcome(_Model):
    """What was measured for a figure in one form, and whether it holds.

    Attributes:
        number: the figure's.
        form: how its runs were made.
        checks: what was measured, with every seed of which all runs are there.
        seeds: those seeds.
    """

    number: str
    form: Form
    checks: tuple[CheckOutcome, ...] = ()
    seeds: tuple[int, ...] = ()

    @property
    @abstractmethod
    def verdict(self) -> State:
        """The worst verdict of its runs."""

    @property
    @abstractmethod
    def trust_note(self) -> str:
        """How many of its runs can be trusted; empty if all can."""

    @property
    @abstractmethod
    def bytes_damaged(self) -> int:
        """Payload that its runs lost for good or corrupted."""

    @property
    def holds(self) -> Answer:
        """Whether what the paper observed was observed here, and no run damaged payload.

        A machine that is late now and then costs throughput and time. Checks that hold in degraded
        runs count, as trusted runs would only be better; checks that fail in them do not count.
        """
        if not self.checks:
            return "not run"
        if self.bytes_damaged:
            return "no"
        holds = all(check.holds for check in self.checks)
        if self.verdict == "invalid" or (self.verdict == "degraded" and not holds):
            return "not trusted"
        return "yes" if holds else "no"

    @property
    def missed(self) -> tuple[CheckOutcome, ...]:
        """The checks that do not hold; none where they do not count (see `holds`)."""
        if self.holds != "no":
            return ()
        return tuple(check for check in self.checks if not check.holds)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it does not hold: a line for each cause."""
        causes = by_cause((check.cause, f"{check.what}: {check.measured}") for check in self.missed)
        return (*self.damage, *causes)

    @property
    def damage(self) -> tuple[str, ...]:
        """What its runs damaged, as a sentence, if they did."""
        damaged = self.bytes_damaged
        return (f"its runs lost or corrupted {damaged:,} B of payload",) if damaged else ()

    @property
    def state(self) -> str:
        """Its number of seeds, if there are several."""
        return f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else ""


def trust_note_of(trusted: int, count: int) -> str:
    """How many of some runs can be trusted; empty if all can."""
    return "" if trusted == count else f"{trusted} of {count} runs trusted"


class FigureOutcome(Outcome):
    """What became of a figure in one form.

    Attributes:
        setup: a digest of what its runs are (see `setup_of`).
        overrides: the options that changed its runs; empty if none did.
        runs: those that were finished.
        failures: why others were not, by their names; and, as `measuring`, why it could not be
            measured or drawn.
        crashed: whether one of these is a mistake in the program.
        drawn: the seed whose runs are drawn, the most typical one; None if all are drawn.
    """

    setup: str = ""
    overrides: str = ""
    runs: tuple[FigureRun, ...] = ()
    failures: dict[str, str] = {}
    crashed: bool = False
    drawn: int | None = None

    @property
    def verdict(self) -> State:
        """The worst verdict of its runs."""
        return max((run.verdict for run in self.runs), key=STATES.index, default="trusted")

    @property
    def bytes_damaged(self) -> int:
        """Payload that its runs lost for good or corrupted."""
        return sum(run.bytes_damaged for run in self.runs)

    @property
    def trust_note(self) -> str:
        """How many of its runs can be trusted, and which unlike machines made them.

        Empty if all can be trusted and machines of one kind made them: what unlike machines made is
        not pooled silently.
        """
        trusted = sum(run.verdict == "trusted" for run in self.runs)
        machines = Counter(run.machine for run in self.runs if run.machine)
        unlike = ""
        if len(machines) > 1:
            shares = ", ".join(f"{count} on {machine}" for machine, count in machines.items())
            unlike = f"runs of unlike machines: {shares}"
        return "; ".join(filter(None, (trust_note_of(trusted, len(self.runs)), unlike)))

    @property
    def state(self) -> str:
        """Its seeds, what changed its runs, how many failed, and the worst, in a line.

        The worst run is named if it cannot be trusted.
        """
        worst = next((run for run in self.runs if run.verdict == self.verdict), None)
        untrusted = ""
        if worst is not None and worst.verdict != "trusted":
            untrusted = f"{worst.name} is {worst.verdict}: {'; '.join(worst.reasons[:1])}"
        failed = f"{len(self.failures)} failed" if self.failures else ""
        return ", ".join(filter(None, (super().state, self.overrides, failed, untrusted)))


class OutcomeStore:
    """Keeps the outcomes and drawings of one form, those of all figures in one directory."""

    def __init__(self, directory: Path, form: Form) -> None:
        """Keep them in a directory of that form below the given one."""
        self.directory, self.form = directory / form, form

    def picture(self, figure: PaperFigure) -> Path:
        """The path of a figure's drawing as SVG; it need not exist."""
        return self.directory / f"{figure.stem}.svg"

    def load(self, figure: PaperFigure) -> FigureOutcome | None:
        """The outcome of a figure when it was last made; None if it never was."""
        file = self._file(figure)
        return (
            FigureOutcome.model_validate_json(file.read_text(encoding="utf-8"))
            if file.is_file()
            else None
        )

    def save(self, figure: PaperFigure, outcome: FigureOutcome) -> None:
        """Write the outcome of a figure; a drawing that does not belong to it is removed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._file(figure).write_text(outcome.model_dump_json(indent=1) + "\n", encoding="utf-8")
        if not outcome.checks:
            for suffix in (".svg", ".png"):
                self.picture(figure).with_suffix(suffix).unlink(missing_ok=True)

    def _file(self, figure: PaperFigure) -> Path:
        return self.directory / f"{figure.stem}.json"
