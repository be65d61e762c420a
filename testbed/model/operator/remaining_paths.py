"""Whether the commands of a scenario leave each flow a path, one after the other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from testbed.model.errors import Problem, few
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.operator.commands import (
    AllowEvs,
    DenyEvs,
    DisablePort,
    EnablePort,
    ReplaceEv,
    TimedCommand,
    evs_named,
    flow_ends,
    flow_name,
)

Ends = tuple[str, str, int]
"""Source, destination and lane of a flow."""


@dataclass
class RemainingPaths:
    """The EVs and ports that are out of use so far: denied EVs, and disabled ports.

    An EV through a disabled port, at either end, is not a remaining path.

    Attributes:
        flows: the flows of the run.
        evs_of: the EVs of a flow when the run begins.
    """

    flows: Sequence[Ends]
    evs_of: Callable[[str, str, int], Sequence[EvChoice]]
    _evs: dict[Ends, list[EvChoice]] = field(default_factory=dict, init=False)
    _denied: dict[Ends, set[int]] = field(default_factory=dict, init=False)
    _disabled: dict[str, set[int]] = field(default_factory=dict, init=False)

    def evs(self, src: str, dst: str, lane: int) -> Sequence[EvChoice]:
        """The EVs of a flow by now."""
        return self._evs_by_now((src, dst, lane))

    def problems(
        self, command: TimedCommand, where: str, added: EvChoice | None
    ) -> Iterator[Problem]:
        """Apply a command; yield the problem that it leaves a flow no path.

        Args:
            command: the next one.
            where: its place, for messages.
            added: the EV that takes another's place, if it replaces one.
        """
        flows = self._touched(command)
        before = [flow for flow in flows if self._has_path(flow)]
        key, found = self._carry_out(command, added)
        lost = [flow_name(*flow) for flow in before if not self._has_path(flow)]
        if lost:
            expected = f"what leaves {few(lost)} a path: the EVs of all others are denied, or "
            yield Problem(f"{where}.{key}", found, f"{expected}their ports are disabled by then")

    def _touched(self, command: TimedCommand) -> list[Ends]:
        if isinstance(command, DisablePort | EnablePort):
            return [flow for flow in self.flows if command.host in flow[:2]]
        ends = flow_ends(command.flow)
        return [] if ends is None else [ends]

    def _carry_out(self, command: TimedCommand, added: EvChoice | None) -> tuple[str, str]:
        """Note what a command does; returns the key and value to name if that is wrong."""
        match command:
            case DisablePort():
                self._disabled.setdefault(command.host, set()).add(command.plane)
                return "plane", str(command.plane)
            case EnablePort():
                self._disabled.setdefault(command.host, set()).discard(command.plane)
            case DenyEvs():
                self._denied_of(command.flow).update(self._values(command.flow, command.ev))
                return "ev", few(command.ev)
            case AllowEvs():
                self._denied_of(command.flow).difference_update(
                    self._values(command.flow, command.ev)
                )
            case ReplaceEv():
                self._denied_of(command.flow).update(self._values(command.flow, [command.ev]))
                ends = flow_ends(command.flow)
                if ends is not None and added is not None:
                    self._evs_by_now(ends).append(added)
                return "ev", command.ev
        return "", ""

    def _values(self, flow: str, names: Iterable[str]) -> set[int]:
        ends = flow_ends(flow)
        evs = [] if ends is None else self._evs_by_now(ends)
        return {value for name in names for value in evs_named(evs, name)}

    def _denied_of(self, flow: str) -> set[int]:
        ends = flow_ends(flow)
        return set() if ends is None else self._denied.setdefault(ends, set())

    def _evs_by_now(self, flow: Ends) -> list[EvChoice]:
        if flow not in self._evs:
            self._evs[flow] = list(self.evs_of(*flow))
        return self._evs[flow]

    def _has_path(self, flow: Ends) -> bool:
        src, dst, _ = flow
        down = self._disabled.get(src, set()) | self._disabled.get(dst, set())
        denied = self._denied.get(flow, set())
        return any(
            ev.value not in denied and ev.path.plane not in down for ev in self._evs_by_now(flow)
        )
