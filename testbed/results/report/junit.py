"""The expectations of a run, or of the runs of a series, as JUnit XML, which CI systems show."""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from testbed.model.summary import Summary
from testbed.model.summary.scopes import outcome

COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}
"""The counts of a suite, each with the element of the test cases that it counts."""


def junit(summary: Summary, *, require_trusted: bool = False) -> str:
    """The file of a run (see `suite_of`)."""
    return _text(suite_of(summary, summary.scenario, require_trusted=require_trusted))


def junit_of_series(suites: Sequence[ET.Element]) -> str:
    """The file of a series: the suites of all its runs."""
    whole = ET.Element("testsuites")
    whole.extend(suites)
    for attribute in (*COUNTED, "tests"):
        whole.set(attribute, str(sum(int(suite.get(attribute, "0")) for suite in suites)))
    return _text(whole)


def suite_of_failed(name: str, error: str) -> ET.Element:
    """The test suite of a run that did not finish: its verdict is an error."""
    suite = ET.Element("testsuite", name=name)
    element = ET.SubElement(suite, "testcase", classname=f"{name}.run", name="verdict", time="0")
    ET.SubElement(element, "error", message=f"the run did not finish: {error}")
    return counted(suite)


def suite_of(summary: Summary, name: str, *, require_trusted: bool = False) -> ET.Element:
    """A test case for each expectation and program, for the data's integrity and the verdict.

    An expectation that does not hold is a failure. A run that cannot be trusted is an error, and
    its expectations are skipped, whether they hold or not: it says nothing of what was tested.

    Args:
        summary: the run's.
        name: what the run is called.
        require_trusted: whether a degraded run counts as one that cannot be trusted.
    """
    suite = ET.Element("testsuite", name=name, time=f"{summary.duration_s:g}")
    properties = ET.SubElement(suite, "properties")
    facts = {
        "run": summary.run,
        "seed": summary.seed,
        "dilation": f"{summary.dilation:g}",
        "verdict": summary.verdict,
        **{f"{operation.kind}s": operation.finished for operation in summary.operations},
    }
    for key, value in facts.items():
        ET.SubElement(properties, "property", name=key, value=str(value))

    def case(group: str, what: str, problem: str = "", message: str = "") -> None:
        element = ET.SubElement(suite, "testcase", classname=f"{name}.{group}", name=what, time="0")
        if problem:
            ET.SubElement(element, problem, message=message)

    usable = summary.usable(require_trusted=require_trusted)
    reasons = f"{summary.verdict}: {'; '.join(summary.reasons)}"
    case("run", "verdict", "" if usable else "error", reasons)
    lost = "" if summary.integrity.intact else "failure"
    case("run", "integrity", lost, "bytes were lost or corrupted")
    for program in summary.programs:
        case("programs", program.place, "failure" if program.failed else "", program.ending)
    for expected in summary.expectations:
        figure = f"{expected.figure} {expected.bound}"
        if usable:
            case(expected.whose, figure, "" if expected.holds else "failure", outcome(expected))
        else:
            was = f"; {outcome(expected)}" if not expected.holds else ""
            case(expected.whose, figure, "skipped", f"the run is {summary.verdict}{was}")
    return counted(suite)


def counted(suite: ET.Element) -> ET.Element:
    """A suite with the numbers of its test cases."""
    for attribute, problem in COUNTED.items():
        suite.set(attribute, str(len(suite.findall(f"testcase/{problem}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    return suite


def _text(root: ET.Element) -> str:
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
