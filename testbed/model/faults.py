"""What can go wrong with a fabric, and when."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from testbed.model.units import Duration


class FaultKind(StrEnum):
    """What can go wrong with a link."""

    BLACKHOLE = "blackhole"
    CUT = "cut"


class Fault(BaseModel):
    """One entry of the timeline."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: FaultKind = Field(
        description="blackhole: packets vanish, carrier stays; cut: carrier lost at both ends"
    )
    target: str = Field(description="a link, such as p0_t0_0--p0_t1_1 or h0--p0_t0_0")
    at: Duration = Field(description="when it begins, from the start of the run")
    for_: Annotated[Duration, Field(gt=0)] = Field(alias="for", description="how long it lasts")

    @property
    def until(self) -> int:
        """When it is healed, in ns from the start of the run."""
        return self.at + self.for_
