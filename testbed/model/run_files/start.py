"""The content of `raw/start.json`: when a run starts, for those who watch it meanwhile."""

from pydantic import BaseModel, ConfigDict


class RunStart(BaseModel):
    """`raw/start.json` of an emulated run.

    Attributes:
        t0_ns: start of the workload on CLOCK_MONOTONIC, in ns.
        base_rtt_ns: the base RTT.
    """

    model_config = ConfigDict(frozen=True)

    t0_ns: int
    base_rtt_ns: int
