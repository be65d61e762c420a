"""The operator's commands for EVs and ports.

The words are those of `mrc_ctl.h` (OCP MRC API): EVs of a queue pair are listed, denied, allowed,
replaced and probed; ports are disabled and enabled. The key `operator` of a scenario lists commands
with their times. `testbed ev` and `testbed port` give commands to a run that is under way.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from testbed.model.errors import Problem, RefusedValueError, as_answer
from testbed.model.fabric.addressing import Path, path_named
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.topology import MAX_PLANES
from testbed.model.part import ByKind, Part
from testbed.model.units import RunTime

_FLOW = re.compile(r"(h\d+)\s*->\s*(h\d+)(?:\s*#(\d{1,4}))?", re.ASCII)


def _as_names(value: object) -> object:
    names = value if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
        raise RefusedValueError("the path or the number of an EV, or a list of them")
    return tuple(str(name) for name in names)


EvNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_names),
    Field(description="EVs: paths such as p2/t1_3, planes such as p2, numbers such as 0x120000"),
]
EvName = Annotated[
    str, BeforeValidator(str), Field(description="an EV: its path, p2/t1_3, or its number")
]
FlowName = Annotated[str, Field(description="the flow, such as h0->h4; h0->h4#1 is its second QP")]


class _Command(Part):
    """The keys that every command has."""

    kind: str
    at: Annotated[RunTime, Field(ge=0)] = Field(
        default=0, description="when, from the start of the run"
    )


class _OnFlow(_Command):
    flow: FlowName


class _OnPort(_Command):
    host: Annotated[str, Field(description="the host, such as h0")]
    plane: Annotated[int, Field(ge=0, lt=MAX_PLANES, strict=True, description="of its port")]


class DenyEvs(_OnFlow):
    """Take EVs out of use until they are allowed."""

    kind: Literal["deny"] = "deny"
    ev: Annotated[EvNames, Field(min_length=1)]


class AllowEvs(_OnFlow):
    """Use denied EVs again, once they have answered probes."""

    kind: Literal["allow"] = "allow"
    ev: Annotated[EvNames, Field(min_length=1)]


class ReplaceEv(_OnFlow):
    """Deny an EV, and use another of its plane instead."""

    kind: Literal["replace"] = "replace"
    ev: EvName
    by: EvName


class ProbeEvs(_OnFlow):
    """Probe EVs at the same time, and report which answer before the deadline."""

    kind: Literal["probe"] = "probe"
    ev: EvNames = Field(default=(), description="EVs; none: every EV of the flow")
    within: RunTime | None = Field(
        default=None, gt=0, description="the deadline; null: 4 base RTTs"
    )


class DisablePort(_OnPort):
    """Take a port out of use: its EVs carry nothing, and peers get a port status update."""

    kind: Literal["disable"] = "disable"


class EnablePort(_OnPort):
    """Use a disabled port again."""

    kind: Literal["enable"] = "enable"


TimedCommand = Annotated[
    DenyEvs | AllowEvs | ReplaceEv | ProbeEvs | DisablePort | EnablePort, ByKind()
]
"""A command that a scenario may have."""


class ListEvs(_OnFlow):
    """List the EVs of a flow with state, counts and last change."""

    kind: Literal["list"] = "list"


class ListPorts(_Command):
    """List the ports of a host."""

    kind: Literal["ports"] = "ports"
    host: str


class ListEvents(_Command):
    """List the changes of EVs and ports at a host since the last time that they were listed."""

    kind: Literal["events"] = "events"
    host: str


Command = Annotated[
    DenyEvs
    | AllowEvs
    | ReplaceEv
    | ProbeEvs
    | DisablePort
    | EnablePort
    | ListEvs
    | ListPorts
    | ListEvents,
    ByKind(),
]
"""A command for a run that is under way."""


class _Holder(Part):
    """Holds a command, for its checks."""

    command: Command


TOO_LATE: Final = as_answer(
    Problem(
        "command",
        "one that arrived too late",
        "one that is begun before its sender has stopped waiting",
        "give it again",
    )
)
"""The answer to a command that arrived after `until_ns` of its message."""

OVER: Final = as_answer(Problem("command", "a run that is over", "a run that is under way"))
"""The answer to a command that arrived at or after the end of the run."""


def parse_command(values: object) -> Command:
    """The command with these values, which were checked before.

    Raises:
        pydantic.ValidationError: they are none of a command.
    """
    return _Holder.model_validate({"command": values}).command


def host_of(command: Command) -> str:
    """The name of the host that carries a command out: of a flow, the one that sends it."""
    if not isinstance(command, _OnFlow):
        return command.host
    ends = flow_ends(command.flow)
    return ends[0] if ends else ""


def evs_named(evs: Iterable[EvChoice], name: str) -> tuple[int, ...]:
    """The EVs that a name means, of a path, a plane or a number; none if it means none."""
    path, value = path_named(name), ev_number(name)
    return tuple(
        ev.value
        for ev in evs
        if ev.value == value or (path is not None and path in {ev.path, Path(ev.path.plane, None)})
    )


def ev_number(name: str) -> int | None:
    """The EV that a decimal or hexadecimal number names; None if it is none of 32 bits."""
    try:
        value = int(name, 0)
    except ValueError:
        return None
    return value if 0 <= value < 1 << 32 else None


def flow_name(src: str, dst: str, lane: int) -> str:
    """The name of a flow: `h0->h4`, or `h0->h4#1` for the second queue pair of these hosts."""
    return f"{src}->{dst}#{lane}" if lane else f"{src}->{dst}"


def flow_ends(name: str) -> tuple[str, str, int] | None:
    """Source, destination and lane of the name of a flow; None if it is no such name."""
    match = _FLOW.fullmatch(name.strip())
    return match and (match[1], match[2], int(match[3] or 0))


@dataclass(frozen=True, slots=True)
class EvRow:
    """An EV of a queue pair.

    Attributes:
        ev: its value.
        path: its path, such as `p2/t1_3`.
        port: the number of its port, which is its plane.
        state: its state.
        active: whether it is in the active set.
        losses: packets lost on it since it was last good.
        condemnations: how often it has been taken out of use.
        denied_by: who denies it.
        changed_rtts_ago: how long ago its state changed, in base RTTs; None if it never did.
        reason: why its state changed last.
    """

    ev: int
    path: str
    port: int
    state: str
    active: bool
    losses: int
    condemnations: int
    denied_by: list[str]
    changed_rtts_ago: float | None
    reason: str
