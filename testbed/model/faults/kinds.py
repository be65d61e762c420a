"""What can go wrong with a fabric: the kinds of faults, and what each does when.

A fault of the timeline is one entry of a scenario. `happenings` turns a timeline into what happens:
each entry, with its repetitions, into steps in time, at each of which its places have an
`Impairment`. Chance (jitter, targets drawn at random) is drawn here, from the seed.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from testbed.model.errors import RefusedValueError
from testbed.model.fabric.addressing import ev_for_path, flow_label_of_ev, path_named
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import WHOLE, Impairment
from testbed.model.faults.targets import choose, expand, members
from testbed.model.part import Part
from testbed.model.units import Duration, RunTime, parse_duration, show_duration

RAMP_STEPS = 10
"""Steps in which a ramp rises: each is a store into the link model's memory."""

MAX_FLAPS = 10_000
"""Times that one fault may take carrier."""

MAX_HAPPENINGS = 10_000
"""Faults that one timeline may make, repetitions counted."""

FAULTS = "faults.jsonl"
"""The file of a run's directory that has what became of its faults, a line for each."""

OPENFLOW = "openflow"
"""The actuator of links that run through Open vSwitch, as records of faults name it."""

CONTROLLER = "controller"
"""The place of a fault that strikes the controller itself."""

NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise RefusedValueError("a name or a list of names, of what it strikes (docs/faults.md)")
    return value


Targets = Annotated[
    tuple[str, ...], Field(min_length=1), BeforeValidator(_as_list), WithJsonSchema(NAMES)
]
Probability = Annotated[float, Field(gt=0, le=1, strict=True)]


class _Fault(Part):
    """What every kind has: where and when."""

    on_hosts: ClassVar[bool] = False
    """Whether it strikes endpoints, rather than links."""

    both_ways: ClassVar[bool] = False
    """Whether it needs both directions of a link."""

    kind: str
    target: Annotated[
        Targets, Field(description="what it strikes: a name or a list (docs/faults.md)")
    ]
    choose: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="strike only so many of the targets, drawn at random each time"
    )
    at: RunTime = Field(description="when it begins, from the start of the run")

    @property
    def until(self) -> int | None:
        """When it is first healed, in ns from the start of the run; None if it never is."""
        return None

    @property
    def fixed(self) -> tuple[str, ...]:
        """The targets that do not depend on chance."""
        return self.target if self.choose is None else ()

    def begins(self, duration: int) -> range:  # noqa: ARG002 - it does not repeat
        """When it strikes, in ns."""
        return range(self.at, self.at + 1)

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:
        """What it does: (ns from its beginning, state of its places from then on), in order."""
        raise NotImplementedError


class Passing(_Fault):
    """What heals, and may come again."""

    for_: Annotated[RunTime, Field(gt=0)] = Field(alias="for", description="how long it lasts")
    every: Annotated[RunTime, Field(gt=0)] | None = Field(
        default=None, description="repeat it so long after it began, until the run ends"
    )
    times: Annotated[int, Field(ge=1, le=MAX_HAPPENINGS, strict=True)] | None = Field(
        default=None, description="how often in all, if not until the run ends"
    )

    @model_validator(mode="after")
    def _repeats_sensibly(self) -> Self:
        if self.times is not None and self.every is None:
            raise RefusedValueError("every (after how long) beside it", key="times")
        if self.every is not None and self.every <= self.for_:
            raise RefusedValueError(
                f"longer than for ({show_duration(self.for_)}): it heals before it strikes again",
                key="every",
            )
        return self

    @property
    def until(self) -> int:
        """When it is first healed, in ns from the start of the run."""
        return self.at + self.for_

    def begins(self, duration: int) -> range:
        """When it strikes, in ns; all of them so early that they heal within the run."""
        if self.every is None:
            return range(self.at, self.at + 1)
        fits = max((duration - self.until) // self.every + 1, 1)
        times = fits if self.times is None else self.times
        return range(self.at, self.at + times * self.every, self.every)


class Cut(Passing):
    """Carrier is lost at both ends: a fibre is pulled."""

    kind: Literal["cut"] = "cut"
    both_ways: ClassVar[bool] = True

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """Dark from the beginning."""
        yield 0, Impairment(cut=True)


class Blackhole(Passing):
    """Packets vanish, carrier stays: a port, a line card or a switch forwards nothing any more."""

    kind: Literal["blackhole"] = "blackhole"

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """Silent from the beginning."""
        yield 0, Impairment(blackhole=True)


class _Grey(Passing):
    """A fault of a degree, which may rise from nothing."""

    ramp: Annotated[RunTime, Field(gt=0)] | None = Field(
        default=None, description="how long it takes to rise to its full degree"
    )

    @model_validator(mode="after")
    def _rises_in_time(self) -> Self:
        if self.ramp is not None and self.ramp > self.for_:
            raise RefusedValueError(
                f"at most as long as for ({show_duration(self.for_)})", key="ramp"
            )
        return self

    def at_degree(self, share: float) -> Impairment:
        """What it does at a share of its full degree."""
        raise NotImplementedError

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """At once, or in RAMP_STEPS steps."""
        if self.ramp is None:
            yield 0, self.at_degree(1.0)
            return
        for step in range(RAMP_STEPS):
            yield self.ramp * step // RAMP_STEPS, self.at_degree((step + 1) / RAMP_STEPS)


class Loss(_Grey):
    """Packets are lost at random: dirt, a bent fibre, a dying laser."""

    kind: Literal["loss"] = "loss"
    probability: Annotated[Probability, Field(description="share of packets lost, above 0 to 1")]

    def at_degree(self, share: float) -> Impairment:
        """A share of the loss."""
        return Impairment(loss=self.probability * share)


class Corrupt(_Grey):
    """A bit of a packet is flipped at random, past what the link's own checks find."""

    kind: Literal["corrupt"] = "corrupt"
    probability: Annotated[
        Probability, Field(description="share of packets in which a bit is flipped")
    ]

    def at_degree(self, share: float) -> Impairment:
        """A share of the corruption."""
        return Impairment(corrupt=self.probability * share)


class Degrade(_Grey):
    """A link runs at a lower rate: lanes of it are lost."""

    kind: Literal["degrade"] = "degrade"
    factor: Annotated[float, Field(gt=0, lt=1, strict=True)] = Field(
        description="what is left of the rate, as a share"
    )

    def at_degree(self, share: float) -> Impairment:
        """A share of the way down."""
        return Impairment(rate=1 - (1 - self.factor) * share)


class Delay(_Grey):
    """A link takes longer: a protection switch has put it on a longer fibre."""

    kind: Literal["delay"] = "delay"
    extra: Annotated[Duration, Field(gt=0)] = Field(
        description="what is added to its delay, in real time as a topology's delays: 5 us"
    )

    def at_degree(self, share: float) -> Impairment:
        """A share of what is added; `happening` dilates it."""
        return Impairment(delay_ns=round(self.extra * share))


class EvLoss(_Grey):
    """Packets of the EVs that take one path are lost: what a bad table entry or lane does."""

    kind: Literal["ev_loss"] = "ev_loss"
    path: Annotated[str, Field(description="their path, as `testbed paths` names it: p0/t1_2")]
    probability: Annotated[Probability, Field(description="share of their packets that is lost")]

    def at_degree(self, share: float) -> Impairment:
        """A share of the loss."""
        path = path_named(self.path)
        if path is None:
            raise ValueError(self.path)
        bits = flow_label_of_ev(ev_for_path(path))
        return Impairment(path_loss=self.probability * share, path_bits=bits)


def _needs_for_or_count(schema: dict[str, Any]) -> None:
    """Say in a JSON Schema that one of the two is enough."""
    schema["required"].remove("for")
    schema["anyOf"] = [{"required": ["for"]}, {"required": ["count"]}]


class Flap(Passing):
    """Carrier comes and goes: a loose transceiver.

    With a `count` it lasts so many periods: `for` need not be given.
    """

    model_config = ConfigDict(json_schema_extra=_needs_for_or_count)
    kind: Literal["flap"] = "flap"
    both_ways: ClassVar[bool] = True
    period: Annotated[RunTime, Field(gt=0)] = Field(description="from one loss to the next")
    duty: Annotated[float, Field(gt=0, lt=1, strict=True)] = Field(
        default=0.5, description="share of the period without carrier"
    )
    jitter: Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        default=0.0, description="how much each stretch varies at random, as a share of it"
    )
    count: Annotated[int, Field(ge=1, le=MAX_FLAPS, strict=True)] | None = Field(
        default=None, description="how often carrier is lost, in place of `for`"
    )

    @model_validator(mode="before")
    @classmethod
    def _lasts_its_count(cls, data: Any) -> Any:
        """Write `for` where `count` and `period` say it."""
        if not isinstance(data, dict) or {"for", "for_"} & data.keys():
            return data
        count = data.get("count")
        if count is None:
            return data
        lasting = 1  # where one of the two is wrong, its own check tells
        with suppress(ValueError):
            if isinstance(count, int) and 0 < count <= MAX_FLAPS:
                lasting = count * max(parse_duration(data.get("period")), 1)
        return {**data, "for": f"{lasting} ns"}

    @model_validator(mode="after")
    def _counts_what_it_lasts(self) -> Self:
        # At another dilation both are rounded to the ns.
        if self.count is not None and abs(self.for_ - self.count * self.period) > self.count:
            raise RefusedValueError(
                f"nothing, or count times period: {show_duration(self.count * self.period)}",
                key="for",
            )
        return self

    @model_validator(mode="after")
    def _flaps_finitely(self) -> Self:
        if self.for_ > MAX_FLAPS * self.period:
            raise RefusedValueError(
                f"one of which at most {MAX_FLAPS} fit into for ({show_duration(self.for_)})",
                key="period",
            )
        return self

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:
        """Down and up in turn, each stretch as long as the last one up to the jitter.

        Of a count all are scaled to fill `for`, so that jitter neither adds nor takes one.
        """
        stretches, scale = self._stretches(random), 1.0
        if self.count is not None:
            drawn = tuple(islice(stretches, 2 * self.count))
            stretches, scale = iter(drawn), self.for_ / sum(length for length, _ in drawn)
        now = 0.0
        for length, state in stretches:
            if now >= self.for_:
                return
            yield round(now), state
            now += length * scale

    def _stretches(self, random: Random) -> Iterator[tuple[float, Impairment]]:
        """How long it is dark and bright in turn, in ns, without end."""
        while True:
            for share, state in ((self.duty, Impairment(cut=True)), (1 - self.duty, WHOLE)):
                yield self.period * share * (1 + self.jitter * random.uniform(-1, 1)), state


class Reboot(Passing):
    """A switch stops forwarding while its ports stay up, goes dark, and comes back."""

    kind: Literal["reboot"] = "reboot"
    both_ways: ClassVar[bool] = True
    silent: Annotated[RunTime, Field(ge=0)] | None = Field(
        default=None, description="how long carrier stays after it has stopped; half of `for`"
    )

    @model_validator(mode="after")
    def _goes_dark(self) -> Self:
        if self.silent is not None and self.silent >= self.for_:
            raise RefusedValueError(
                f"less than for ({show_duration(self.for_)}): then it is dark until it is back",
                key="silent",
            )
        return self

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """Silent, then dark."""
        silent = self.for_ // 2 if self.silent is None else self.silent
        if silent:
            yield 0, Impairment(blackhole=True)
        yield silent, Impairment(cut=True, blackhole=True)


class Freeze(Passing):
    """An endpoint stops for a while: its host swaps, its kernel hangs, a debugger holds it."""

    kind: Literal["freeze"] = "freeze"
    on_hosts: ClassVar[bool] = True

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """Stopped from the beginning."""
        yield 0, Impairment(frozen=True)


class Kill(_Fault):
    """An endpoint, or the controller, ends for good: a crash, as `kill -9` makes one."""

    kind: Literal["kill"] = "kill"
    on_hosts: ClassVar[bool] = True

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """Dead from the beginning."""
        yield 0, Impairment(dead=True)


Fault = Annotated[
    Cut | Blackhole | Loss | Corrupt | Degrade | Delay | EvLoss | Flap | Reboot | Freeze | Kill,
    Field(discriminator="kind"),
]
"""One entry of a timeline."""


# --- what happens when ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """From a time on, in ns from the start of the run, the places are in this state."""

    at: int
    state: Impairment = field(compare=False)


@dataclass(frozen=True, slots=True)
class Happening:
    """One fault, once.

    Attributes:
        index: its number among all of the run.
        kind: what it is.
        target: what it strikes, in words.
        places: directions of links; hosts, where it strikes endpoints.
        steps: its course; the last one leaves the places whole, if it heals.
    """

    index: int
    kind: str
    target: str
    places: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def at(self) -> int:
        """When it begins."""
        return self.steps[0].at

    @property
    def ends(self) -> int | None:
        """When it is healed; None if it never is."""
        last = self.steps[-1]
        return last.at if last.state == WHOLE else None

    def ends_by(self, step: Step) -> bool:
        """Whether it is over with that step of its course."""
        return step is self.steps[-1] and step.state == WHOLE

    def state_at(self, time: int) -> Impairment:
        """What it does to its places at a time."""
        return next((step.state for step in reversed(self.steps) if step.at <= time), WHOLE)


def happenings(
    topology: Topology, timeline: Sequence[Fault], duration: int, seed: int
) -> tuple[Happening, ...]:
    """Everything that a timeline makes happen, entry by entry.

    Args:
        topology: the fabric; the timeline's names must be names of it.
        timeline: the entries.
        duration: of the run in ns; entries repeat within it.
        seed: repeats the choice of targets and the jitter.
    """
    found: list[Happening] = []
    for entry, fault in enumerate(timeline):
        found += repetitions(topology, fault, duration, f"{seed}/{entry}", first=len(found))
    return tuple(found)


def repetitions(
    topology: Topology, fault: Fault, duration: int, seed: str, first: int = 0
) -> Iterator[Happening]:
    """Everything that one entry makes happen, numbered from `first` on."""
    for nth, begin in enumerate(fault.begins(duration)):
        yield happening(topology, fault, first + nth, begin, f"{seed}/{nth}")


def happening(topology: Topology, fault: Fault, index: int, begin: int, seed: str) -> Happening:
    """One fault once, from a time on."""
    names = members(topology, fault.target)
    if fault.choose is not None:
        names = choose(names, fault.choose, seed)
    course = fault.course(Random(f"{seed}/course"))  # noqa: S311 - repeatable chance
    steps = [
        Step(begin + offset, replace(state, delay_ns=round(state.delay_ns * topology.dilation)))
        for offset, state in course
    ]
    if fault.until is not None:
        steps.append(Step(begin + fault.until - fault.at, WHOLE))
    struck = ", ".join(fault.target if fault.choose is None else names)
    return Happening(index, fault.kind, struck, _places(topology, fault, names), tuple(steps))


def _places(topology: Topology, fault: Fault, names: tuple[str, ...]) -> tuple[str, ...]:
    if fault.on_hosts:
        return names
    found = (place for name in names for place in expand(topology, name) or ())
    return tuple(dict.fromkeys(found))
