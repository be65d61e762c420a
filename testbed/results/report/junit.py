"""A run's expectations as JUnit XML, which CI systems show."""

from xml.etree import ElementTree as ET

from testbed.model.summary import Summary
from testbed.model.summary.scopes import outcome


def junit(summary: Summary, *, require_trusted: bool = False) -> str:
    """A test case for each expectation, for the integrity of the data, and for the verdict.

    An expectation that does not hold is a failure. A run that cannot be trusted is an error, and
    what holds in it is not passed but skipped.

    Args:
        summary: the run's.
        require_trusted: whether a degraded run counts as one that cannot be trusted.
    """
    suite = ET.Element("testsuite", name=summary.scenario, time=f"{summary.duration_s:g}")
    properties = ET.SubElement(suite, "properties")
    facts = {
        "run": summary.run,
        "seed": summary.seed,
        "dilation": f"{summary.dilation:g}",
        "verdict": summary.verdict,
    }
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=str(value))

    def case(group: str, name: str, problem: str = "", message: str = "") -> None:
        classname = f"{summary.scenario}.{group}"
        element = ET.SubElement(suite, "testcase", classname=classname, name=name, time="0")
        if problem:
            ET.SubElement(element, problem, message=message)

    usable = summary.usable(require_trusted=require_trusted)
    reasons = f"{summary.verdict}: {'; '.join(summary.reasons)}"
    case("run", "verdict", "" if usable else "error", reasons)
    lost = "" if summary.integrity.intact else "failure"
    case("run", "integrity", lost, "bytes were lost or corrupted")
    for expected in summary.expectations:
        name = f"{expected.figure} {expected.bound}"
        if expected.holds and not usable:
            case(expected.scope, name, "skipped", f"the run is {summary.verdict}")
        else:
            case(expected.scope, name, "" if expected.holds else "failure", outcome(expected))
    for attribute, problem in (("failures", "failure"), ("errors", "error"), ("skipped",) * 2):
        suite.set(attribute, str(len(suite.findall(f"testcase/{problem}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
