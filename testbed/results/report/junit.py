"""A run's expectations as JUnit XML, which CI systems show."""

from xml.etree import ElementTree as ET

from testbed.model.summary import Summary
from testbed.model.summary.scopes import outcome


def junit(summary: Summary) -> str:
    """A test case for each expectation, for the integrity of the data, and for the verdict.

    An expectation that does not hold is a failure; a run that cannot be trusted is an error.
    """
    suite = ET.Element("testsuite", name=summary.scenario, time=f"{summary.duration_s:g}")
    properties = ET.SubElement(suite, "properties")
    facts = {"run": summary.run, "seed": summary.seed, "dilation": f"{summary.dilation:g}"}
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=str(value))

    def case(group: str, name: str, problem: str = "", message: str = "") -> None:
        classname = f"{summary.scenario}.{group}"
        element = ET.SubElement(suite, "testcase", classname=classname, name=name, time="0")
        if problem:
            ET.SubElement(element, problem, message=message)

    invalid = summary.verdict == "invalid"
    case("run", "verdict", "error" if invalid else "", "; ".join(summary.reasons))
    lost = "" if summary.integrity.intact else "failure"
    case("run", "integrity", lost, "bytes were lost or corrupted")
    for expected in summary.expectations:
        name = f"{expected.figure} {expected.bound}"
        case(expected.scope, name, "" if expected.holds else "failure", outcome(expected))
    for problem in ("failure", "error"):
        suite.set(f"{problem}s", str(len(suite.findall(f"testcase/{problem}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
