"""Faults of hosts: their endpoints stop, end, or are busy."""

from collections.abc import Iterator
from random import Random
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from testbed.model.errors import RefusedValueError
from testbed.model.faults.fault import AnyFault, Probability, TemporaryFault
from testbed.model.faults.impairment import Impairment

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
