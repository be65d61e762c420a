"""What is written beside the raw records while a run lasts: its start, and flows of programs."""

from pydantic import BaseModel, ConfigDict

FLOWS = "flows.jsonl"
"""The name of the file; it is locked while a line is added."""


class RunStart(BaseModel):
    """`raw/start.json` of an emulated run.

    Attributes:
        t0_ns: start of the workload on CLOCK_MONOTONIC, in ns.
        base_rtt_ns: the base RTT.
    """

    model_config = ConfigDict(frozen=True)

    t0_ns: int
    base_rtt_ns: int


class OpenedFlow(BaseModel):
    """A line of `raw/flows.jsonl`: a program has sent its first data packet on a queue pair.

    Attributes:
        flow: its number, counted from 0.
        src: the host that sends.
        dst: the host that receives.
        lane: how many flows between the two began before.
        qpn: the number of the sending queue pair.
        psn: its first PSN, which tells apart the queue pairs of that number.
        program: a file beside this one, which its program locks as long as it has the device open.
    """

    model_config = ConfigDict(frozen=True)

    flow: int
    src: str
    dst: str
    lane: int
    qpn: int
    psn: int
    program: str
