"""Whether and how the fabric is probed during a run."""

from typing import Annotated

from pydantic import Field

from testbed.model.kinds import Part
from testbed.model.units import Duration, parse_duration


class Clustermapper(Part):
    """Probes over every link from the hosts, which find out what is ill (MRC paper, section 3)."""

    period: Annotated[Duration, Field(gt=0)] = Field(
        default=parse_duration("25 us"),
        description="in which every link is probed, in real time like the fabric's delays",
    )
    denylist: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="whether endpoints are told which EVs to avoid"
    )
