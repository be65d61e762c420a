"""Faults injected by hand, from JSON."""

from testbed.model.errors import Problem, raise_any
from testbed.model.fabric.topology import Topology
from testbed.model.faults.checks import single_fault_problems
from testbed.model.faults.fault import TemporaryFault
from testbed.model.faults.kinds import Fault
from testbed.model.files.reading import parse_request
from testbed.model.files.validation import validated
from testbed.model.part import Part

DEFAULT_LENGTH = "10 min"
"""How long a fault injected by hand lasts if the request says nothing and nobody heals it."""


class _Request(Part):
    """The data of a request to inject a fault."""

    fault: Fault


def load_fault(text: str, topology: Topology) -> Fault:
    """Read a fault that is to begin now: an entry of a timeline without `at`, `for` optional.

    Args:
        text: the entry in JSON.
        topology: the fabric whose nodes and links it names.

    Raises:
        InputError: it is wrong.
    """
    example = '{"kind": "cut", "target": "p0"}'
    document = parse_request(text, "fault", "a fault in JSON", example)
    entry = document.data["fault"]
    if isinstance(entry, dict):
        ends_itself = entry.get("kind") == "kill" or "count" in entry
        entry = {"at": "0 s", **({} if ends_itself else {"for": DEFAULT_LENGTH}), **entry}
    fault = validated(_Request, {"fault": entry}, document, rtt=topology.round_trip).fault
    problems = [*single_fault_problems(topology, fault, "fault")]
    repeats = isinstance(fault, TemporaryFault) and fault.every is not None
    if fault.at or repeats:
        where = "fault.at" if fault.at else "fault.every"
        expected = "no such key: a fault injected by hand begins now, once"
        problems.append(Problem(where, document.texts[where], expected))
    raise_any(map(document.located, problems))
    return fault
