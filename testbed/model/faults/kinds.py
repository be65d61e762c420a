"""The kinds of faults: the keys of a timeline entry, and its course over time.

The course of a fault is the sequence of impairments that it puts on the places that it strikes.
`schedule` computes from it when which place is impaired.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from random import Random
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from testbed.model.errors import RefusedValueError
from testbed.model.fabric.addressing import ev_for_path, flow_label_of_ev, path_named
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.part import Part
from testbed.model.units import BaseRtt, RealTime, RunTime, exact_duration, parse_run_time

# --------------------------------------------------------------------------------------------------
# What every kind of fault has: targets, a time, a course.


MAX_FAULTS = 10_000
"""How many faults one timeline may have, repetitions included."""

NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise RefusedValueError("the name of a target, or a list of them (docs/faults.md)")
    return value


Targets = Annotated[
    tuple[str, ...], Field(min_length=1), BeforeValidator(_as_list), WithJsonSchema(NAMES)
]
Probability = Annotated[float, Field(gt=0, le=1, strict=True)]


class OperationStart(Part):
    """The moment in which the first host begins an operation that programs report."""

    operation: str = Field(min_length=1, description="the name of the operation, such as step")
    number: int = Field(ge=0, strict=True, description="its number, as the programs report it")

    def __str__(self) -> str:
        """It in words: `step 10`."""
        return f"{self.operation} {self.number}"


class AnyFault(Part):
    """What every kind has: targets and a time.

    Attributes:
        full: the impairment of its places at the fault's full degree, where no key decides it.
        strikes_hosts: whether it strikes endpoints rather than links.
        needs_process: whether it strikes the process of an endpoint; a simulated host has none.
        needs_both_directions: whether it strikes both directions of a link or none.
    """

    full: ClassVar[Impairment] = HEALTHY
    strikes_hosts: ClassVar[bool] = False
    needs_process: ClassVar[bool] = False
    needs_both_directions: ClassVar[bool] = False

    kind: str
    target: Annotated[
        Targets, Field(description="what it affects: a name or a list of names (docs/faults.md)")
    ]
    choose: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="strike only this many of the targets, drawn at random each time"
    )
    at: RunTime = Field(description="when it begins, from the start of the run or from `after` on")
    after: OperationStart | None = Field(
        default=None,
        description="times count from the start of this operation of the programs, instead of from "
        "the start of the run: {operation: step, number: 10}",
    )

    @property
    def heals_at_ns(self) -> int | None:
        """When its first repetition heals, in ns of the run; None if it never heals."""
        return None

    def start_times_ns(self, duration_ns: int) -> range:  # noqa: ARG002 - only some kinds repeat
        """When each repetition begins, in a run that lasts so long."""
        return range(self.at, self.at + 1)

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """Yield (ns since the beginning, impairment from then on) in order of time.

        Healing is not part of the course.
        """
        yield 0, self.full


class TemporaryFault(AnyFault):
    """A fault that heals, and that may repeat."""

    for_: Annotated[RunTime, Field(gt=0)] = Field(alias="for", description="how long it lasts")
    every: Annotated[RunTime, Field(gt=0)] | None = Field(
        default=None, description="repeat it at this interval until the run ends"
    )
    times: Annotated[int, Field(ge=1, le=MAX_FAULTS, strict=True)] | None = Field(
        default=None, description="how often in all, if not until the run ends"
    )

    @model_validator(mode="after")
    def _check_repetition(self) -> Self:
        if self.times is not None and self.every is None:
            raise RefusedValueError("the key every (the interval) beside it", key="times")
        if self.every is not None and self.every <= self.for_:
            raise RefusedValueError(
                f"longer than for ({exact_duration(self.for_)}): it heals before it begins again",
                key="every",
            )
        return self

    @property
    def heals_at_ns(self) -> int:
        """When its first repetition heals, in ns of the run."""
        return self.at + self.for_

    def start_times_ns(self, duration_ns: int) -> range:
        """When each repetition begins; without `times`, all that heal within the run."""
        if self.every is None:
            return super().start_times_ns(duration_ns)
        fitting = max((duration_ns - self.heals_at_ns) // self.every + 1, 1)
        times = fitting if self.times is None else self.times
        return range(self.at, self.at + times * self.every, self.every)


# --------------------------------------------------------------------------------------------------
# Faults of hosts: their endpoints stop, end, or are busy.


MAX_PENALTY = 127
"""The largest window penalty: the field `rcv_cwnd_pen` has seven bits (OCP MRC 1.0)."""


class Freeze(TemporaryFault):
    """An endpoint stops for a while: its host swaps, its kernel hangs, a debugger holds it."""

    kind: Literal["freeze"] = "freeze"
    full: ClassVar[Impairment] = Impairment(frozen=True)
    strikes_hosts: ClassVar[bool] = True
    needs_process: ClassVar[bool] = True


class Kill(AnyFault):
    """An endpoint, or the controller, ends for good, as by `kill -9`."""

    kind: Literal["kill"] = "kill"
    full: ClassVar[Impairment] = Impairment(dead=True)
    strikes_hosts: ClassVar[bool] = True
    needs_process: ClassVar[bool] = True


class Busy(TemporaryFault):
    """An endpoint cannot keep up with what arrives, and says so to the senders.

    It does one of three things: it takes a part of their windows with each SACK (`penalty`), it
    refuses packets (`refuse`), or it asks them to leave a path (`path`).
    """

    kind: Literal["busy"] = "busy"
    strikes_hosts: ClassVar[bool] = True
    penalty: Annotated[int, Field(ge=0, le=MAX_PENALTY, strict=True)] | None = Field(
        default=None,
        description="128ths by which SACKs shrink the sender's window: of the window, with "
        "`nscc: uec` of the bytes that each SACK reports; 0 takes nothing",
    )
    restore: bool = Field(
        default=True,
        strict=True,
        description="whether SACKs ask, when a penalty is over, for the window from before it",
    )
    refuse: Literal["no_bitmap", "no_pkt_buffer", "no_resource"] | None = Field(
        default=None, description="the reason of the NACKs with which new packets are refused"
    )
    share: Probability = Field(default=1.0, description="share of the new packets it refuses")
    path: str | None = Field(
        default=None, description="the path that SACKs ask to leave (m = 2), such as p0/t1_2"
    )

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [key for key in ("penalty", "refuse", "path") if getattr(self, key) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise RefusedValueError(
                f"one of penalty, refuse and path (there is {found})",
                key=given[-1] if given else "",
            )
        if self.share < 1 and self.refuse is None:
            raise RefusedValueError("the key refuse beside it", key="share")
        if not self.restore and self.penalty is None:
            raise RefusedValueError("the key penalty beside it", key="restore")
        return self

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """The same impairment from the beginning to the end."""
        yield (
            0,
            Impairment(
                penalty=self.penalty or 0,
                unrestored=bool(self.penalty) and not self.restore,
                refusal=self.refuse or "",
                refused=self.share if self.refuse else 0.0,
                skipped_path=self.path or "",
            ),
        )


RAMP_STEPS = 10
"""Steps in which a ramp rises to the full degree."""

MAX_FLAPS = 10_000
"""How often one fault may take the carrier away."""


class Cut(TemporaryFault):
    """Both ends of a link lose carrier: a fibre is pulled."""

    kind: Literal["cut"] = "cut"
    full: ClassVar[Impairment] = Impairment(cut=True)
    needs_both_directions: ClassVar[bool] = True


class Blackhole(TemporaryFault):
    """Packets vanish while carrier stays: a port, a line card or a switch forwards nothing."""

    kind: Literal["blackhole"] = "blackhole"
    full: ClassVar[Impairment] = Impairment(blackhole=True)


class _GradedFault(TemporaryFault):
    """A fault with a degree, which may rise from nothing to the full degree."""

    ramp: Annotated[RunTime, Field(gt=0)] | None = Field(
        default=None, description="how long it takes to rise to its full degree"
    )

    @model_validator(mode="after")
    def _check_ramp(self) -> Self:
        if self.ramp is not None and self.ramp > self.for_:
            raise RefusedValueError(
                f"at most as long as for ({exact_duration(self.for_)})", key="ramp"
            )
        return self

    def at_degree(self, share: float) -> Impairment:
        """The impairment at a share (0 to 1) of the full degree."""
        raise NotImplementedError

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """The full degree at once, or RAMP_STEPS steps up to it."""
        if self.ramp is None:
            yield 0, self.at_degree(1.0)
            return
        for step in range(RAMP_STEPS):
            yield self.ramp * step // RAMP_STEPS, self.at_degree((step + 1) / RAMP_STEPS)


class Loss(_GradedFault):
    """Packets are lost at random: dirt, a bent fibre, a dying laser."""

    kind: Literal["loss"] = "loss"
    probability: Probability = Field(description="share of packets lost, above 0 to 1")

    def at_degree(self, share: float) -> Impairment:
        return Impairment(loss=self.probability * share)


class Corrupt(_GradedFault):
    """A bit of a packet is flipped at random, and the link's own checksum does not find it."""

    kind: Literal["corrupt"] = "corrupt"
    probability: Probability = Field(description="share of packets in which a bit is flipped")

    def at_degree(self, share: float) -> Impairment:
        return Impairment(corrupt=self.probability * share)


class Degrade(_GradedFault):
    """A link runs at a lower rate: it has lost lanes."""

    kind: Literal["degrade"] = "degrade"
    factor: Annotated[float, Field(gt=0, lt=1, strict=True)] = Field(
        description="what is left of the rate, as a share"
    )

    def at_degree(self, share: float) -> Impairment:
        """The rate lowered by that share of the full reduction."""
        return Impairment(rate=1 - (1 - self.factor) * share)


class Delay(_GradedFault):
    """A link's propagation delay grows: a protection switch has put it on a longer fibre."""

    kind: Literal["delay"] = "delay"
    extra: Annotated[RealTime, Field(gt=0)] = Field(description="added to its delay, such as 5 us")

    def at_degree(self, share: float) -> Impairment:
        """That share of the added delay, in real time; `schedule_fault` dilates it."""
        return Impairment(delay_ns=round(self.extra * share))


class EvLoss(_GradedFault):
    """Packets of the EVs that take one path are lost: a bad table entry, or a bad lane."""

    kind: Literal["ev_loss"] = "ev_loss"
    path: Annotated[str, Field(description="the path, as `testbed paths` names it: p0/t1_2")]
    probability: Probability = Field(description="share of the packets on it that is lost")

    def at_degree(self, share: float) -> Impairment:
        path = path_named(self.path)
        if path is None:
            raise ValueError(self.path)
        bits = flow_label_of_ev(ev_for_path(path))
        return Impairment(path_loss=self.probability * share, path_bits=bits)


def _needs_for_or_count(schema: dict[str, Any]) -> None:
    """Have a JSON Schema require either `for` or `count`."""
    schema["required"].remove("for")
    schema["anyOf"] = [{"required": ["for"]}, {"required": ["count"]}]


class Flap(TemporaryFault):
    """Carrier comes and goes: a loose transceiver.

    With a `count` it lasts that many periods, and `for` need not be given.
    """

    model_config = ConfigDict(json_schema_extra=_needs_for_or_count)
    kind: Literal["flap"] = "flap"
    needs_both_directions: ClassVar[bool] = True
    period: Annotated[RunTime, Field(gt=0)] = Field(
        description="from one loss of carrier to the next"
    )
    duty: Annotated[float, Field(gt=0, lt=1, strict=True)] = Field(
        default=0.5, description="share of the period without carrier"
    )
    jitter: Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        default=0.0, description="by which share each up and down time varies at random"
    )
    count: Annotated[int, Field(ge=1, le=MAX_FLAPS, strict=True)] | None = Field(
        default=None, description="how often carrier is lost, instead of `for`"
    )

    @model_validator(mode="before")
    @classmethod
    def _derive_for(cls, data: Any, info: ValidationInfo) -> Any:
        """Add `for` where `count` and `period` determine it."""
        if not isinstance(data, dict) or {"for", "for_"} & data.keys():
            return data
        count = data.get("count")
        if count is None:
            return data
        for_ns = 1  # where count or period is wrong, the check of that key reports it
        with suppress(ValueError):
            if isinstance(count, int) and 0 < count <= MAX_FLAPS:
                rtt = info.context if isinstance(info.context, BaseRtt) else None
                for_ns = count * max(parse_run_time(data.get("period"), rtt), 1)
        return {**data, "for": f"{for_ns} ns"}

    @model_validator(mode="after")
    def _check_count_and_period(self) -> Self:
        # A change of the dilation rounds both to the ns.
        if self.count is not None and abs(self.for_ - self.count * self.period) > self.count:
            product = exact_duration(self.count * self.period)
            raise RefusedValueError(f"nothing, or count times period: {product}", key="for")
        if self.for_ > MAX_FLAPS * self.period:
            raise RefusedValueError(
                f"so long that at most {MAX_FLAPS} fit into for ({exact_duration(self.for_)})",
                key="period",
            )
        return self

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:
        """Carrier is down and up alternately, for times that the jitter varies.

        With a `count` the times are scaled to fill `for`, so that jitter does not change the count.
        """
        intervals, scale = self._intervals(random), 1.0
        if self.count is not None:
            drawn = tuple(islice(intervals, 2 * self.count))
            intervals, scale = iter(drawn), self.for_ / sum(length for length, _ in drawn)
        time = 0.0
        for length, impairment in intervals:
            if time >= self.for_:
                return
            yield round(time), impairment
            time += length * scale

    def _intervals(self, random: Random) -> Iterator[tuple[float, Impairment]]:
        """Yield the lengths of down and up times alternately, in ns, without end."""
        while True:
            for share, impairment in ((self.duty, Cut.full), (1 - self.duty, HEALTHY)):
                yield self.period * share * (1 + self.jitter * random.uniform(-1, 1)), impairment


class Reboot(TemporaryFault):
    """A switch stops forwarding while its ports stay up, then loses carrier, then comes back."""

    kind: Literal["reboot"] = "reboot"
    needs_both_directions: ClassVar[bool] = True
    silent: Annotated[RunTime, Field(ge=0)] | None = Field(
        default=None,
        description="how long carrier stays after forwarding stopped; default: half of `for`",
    )

    @model_validator(mode="after")
    def _check_silent(self) -> Self:
        if self.silent is not None and self.silent >= self.for_:
            raise RefusedValueError(
                f"less than for ({exact_duration(self.for_)}): carrier is lost for the rest of it",
                key="silent",
            )
        return self

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """A blackhole with carrier, then no carrier."""
        silent = self.for_ // 2 if self.silent is None else self.silent
        if silent:
            yield 0, Impairment(blackhole=True)
        yield silent, Impairment(cut=True, blackhole=True)


Fault = Annotated[
    Cut
    | Blackhole
    | Loss
    | Corrupt
    | Degrade
    | Delay
    | EvLoss
    | Flap
    | Reboot
    | Busy
    | Freeze
    | Kill,
    Field(discriminator="kind"),
]
"""One entry of a timeline."""
