"""An operator's commands by hand: what is asked for, checked, and what is answered.

    POST   /operator    a command, such as {"kind": "deny", "flow": "h0->h4", "ev": "p2/t1_3"}

The kinds are those of `testbed/model/operator/commands.py`. The status of a wrong command is 400,
with its problems: {"errors": [{"where", "found", "expected", "remedy"}]}. 409: the run has not
begun, or is over. 504: the host did not answer in time.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from testbed.control_api.faults import Answer, refused, refused_request
from testbed.model.errors import InputError, Problem, did_you_mean, few
from testbed.model.fabric.topology import Topology
from testbed.model.files.reading import parse_request
from testbed.model.files.validation import validated
from testbed.model.operator.checks import OnFlow
from testbed.model.operator.commands import Command, host_of
from testbed.model.part import Part

PATH = "/operator"
"""The path of these requests."""

Carry = Callable[[Command], dict[str, Any]]
"""Carries a command out; returns its result, or `errors`."""


class _Request(Part):
    command: Command


def load_command(text: str, topology: Topology) -> Command:
    """Read a command that is to be carried out now.

    Args:
        text: the command in JSON.
        topology: the fabric.

    Raises:
        InputError: it is wrong.
    """
    example = '{"kind": "list", "flow": "h0->h4"}'
    document = parse_request(text, "command", "a command in JSON", example)
    values = document.data["command"]
    if not isinstance(values, dict) or "kind" not in values:
        raise InputError.of(
            "command.kind", "", "what to do: list, deny, allow, replace, probe, ..."
        )
    command = validated(_Request, {"command": values}, document, rtt=topology.round_trip).command
    if command.at:
        expected = "no such key: a command by hand is carried out now"
        raise InputError([document.located(Problem("command.at", str(values["at"]), expected))])
    _check_host(command, topology)
    return command


def _check_host(command: Command, topology: Topology) -> None:
    """Check that the host which is to carry a command out is one of the fabric.

    Raises:
        InputError: it is none.
    """
    hosts = [host.name for host in topology.hosts]
    name = host_of(command)
    if name in hosts:
        return
    if isinstance(command, OnFlow):
        expected = f"a flow between hosts of {topology.name}, such as {hosts[0]}->{hosts[-1]}"
        raise InputError.of("command.flow", command.flow, expected)
    expected = f"a host of {topology.name}: {few(hosts)}"
    raise InputError.of("command.host", name, expected, did_you_mean(name, hosts))


def operate(text: str, topology: Topology, carry: Carry) -> Answer:
    """Carry out the command of a request, or say why not."""
    try:
        command = load_command(text, topology)
    except InputError as error:
        return refused(HTTPStatus.BAD_REQUEST, *error.problems)
    try:
        content = carry(command)
    except KeyError:
        expected = "a host that takes part"
        return refused_request(HTTPStatus.BAD_REQUEST, host_of(command), expected)
    status = HTTPStatus.BAD_REQUEST if "errors" in content else HTTPStatus.OK
    return status, content
