"""Whether the runs of a study support its hypotheses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal
from xml.etree import ElementTree as ET

from testbed.model.summary.scopes import SCOPES
from testbed.model.summary.unit import NEVER
from testbed.results.analysis.estimates import (
    Estimate,
    difference,
    estimate,
    interval_meaning,
    ratio,
)
from testbed.results.comparison import Group
from testbed.results.report.comparison_report import format_estimate
from testbed.results.report.junit import counted
from testbed.studies.study.file import Hypothesis, StudyFile

Answer = Literal["supported", "refuted", "undecided", "not judged"]

Cells = Mapping[tuple[str, str], Group]
"""The runs of each case in each scenario, by their names."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a hypothesis in one scenario.

    Attributes:
        claim: the hypothesis in words, with its bounds.
        scenario: where.
        answer: `supported` if the whole interval of the estimate is as expected, `refuted` if none
            of it is, `undecided` if a part is, `not judged` if the runs do not allow an answer.
        measured: the estimate, or why there is none.
    """

    claim: str
    scenario: str
    answer: Answer
    measured: str


def judged(content: StudyFile, cells: Cells) -> tuple[Judgement, ...]:
    """Judge each hypothesis in each of its scenarios."""
    return tuple(
        _judged(
            hypothesis, scenario, [cells[cell] for cell in content.compared(hypothesis, scenario)]
        )
        for hypothesis in content.expect
        for scenario in hypothesis.scenario or content.scenarios
    )


def _judged(hypothesis: Hypothesis, scenario: str, groups: Sequence[Group]) -> Judgement:
    if why := next(filter(None, (_why_not(group, hypothesis.metric) for group in groups)), ""):
        return Judgement(hypothesis.in_full, scenario, "not judged", why)
    samples, *others = [_samples(group, hypothesis.metric) for group in groups]
    if hypothesis.of is not None:
        usual = median(others[0])
        why = f"the median of {hypothesis.of} is {'never' if usual else '0'}"
        if min(*samples, *others[0]) < 0:
            why, usual = "negative values have no ratio", 0
        if usual in {0, NEVER}:
            return Judgement(hypothesis.in_full, scenario, "not judged", why)
        found = ratio(samples, others[0])
        answer: Answer = _within(hypothesis, found)
    elif others:
        found = difference(samples, others[0])
        sign = 1 if hypothesis.more_than else -1
        ends = sorted((sign * found.low, sign * found.high))
        answer = "supported" if ends[0] > 0 else "refuted" if ends[1] <= 0 else "undecided"
    else:
        found = estimate(samples)
        answer = _within(hypothesis, found)
    what = "" if not others else "difference " if hypothesis.of is None else "ratio "
    what += format_estimate(found, signed=what == "difference ")
    meaning = interval_meaning([found.count]) or "one run"
    return Judgement(hypothesis.in_full, scenario, answer, f"{what}, {meaning}")


def _within(hypothesis: Hypothesis, found: Estimate) -> Answer:
    """Whether an interval is within the bounds, beyond them, or reaches over one."""
    bound = hypothesis.bound
    if bound.allows(found.low) and bound.allows(found.high):
        return "supported"
    below = bound.at_least is not None and found.high < bound.at_least
    above = found.low == NEVER or (bound.at_most is not None and found.low > bound.at_most)
    return "refuted" if below or above else "undecided"


def _why_not(group: Group, metric: str) -> str:
    """Why the runs of a case allow no answer; empty if they do."""
    unusable = sum(not summary.usable(require_trusted=False) for summary in group.summaries)
    missing = len(group.runs) - len(_samples(group, metric))
    for count, what in (
        (group.failed, "did not finish"),
        (unusable, "cannot be trusted"),
        (missing, f"measured no {metric}"),
    ):
        if count:
            why = _why_none(group, metric) if count == missing == len(group.runs) else ""
            return f"{group.name}: {count} of {group.planned} runs {what}{why}"
    return ""


def _why_none(group: Group, metric: str) -> str:
    """Why no run of a case has a metric, if it has nothing of which there could be one."""
    scope = SCOPES.get(metric.partition(".")[0])
    if scope is None or any(scope.found(summary) for summary in group.summaries):
        return ""
    return f": {scope.absent}"


def _samples(group: Group, metric: str) -> list[float]:
    return [number for number in group.numbers(metric) if number is not None]


def suite_of_hypotheses(name: str, judgements: Sequence[Judgement]) -> ET.Element:
    """The hypotheses as a test suite: what is not supported fails, what is not judged is an error.

    Args:
        name: the study's.
        judgements: what became of its hypotheses.
    """
    suite = ET.Element("testsuite", name=name)
    for judgement in judgements:
        of = f"{name}.{judgement.scenario}"
        case = ET.SubElement(suite, "testcase", classname=of, name=judgement.claim, time="0")
        if judgement.answer != "supported":
            problem = "error" if judgement.answer == "not judged" else "failure"
            message = f"{judgement.answer}: {judgement.measured}"
            ET.SubElement(case, problem, message=message)
    return counted(suite)
