"""What is written beside the raw records while a run lasts: its start, and flows of programs."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

FLOWS = "flows.jsonl"
"""The name of the file; it is locked while a line is added."""


def lines_of(file: Path) -> list[str]:
    """The lines of one of these files; none if nobody has written it."""
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


class RunStart(BaseModel):
    """`raw/start.json` of an emulated run.

    Attributes:
        t0_ns: start of the workload on CLOCK_MONOTONIC, in ns.
        base_rtt_ns: the base RTT.
        planned: where programs send beside other workloads, source and destination of those flows,
            by number: the flows of programs are numbered from there on.
    """

    model_config = ConfigDict(frozen=True)

    t0_ns: int
    base_rtt_ns: int
    planned: tuple[tuple[str, str], ...] = ()


class OpenedFlow(BaseModel):
    """A line of `raw/flows.jsonl`: a program has sent its first data packet on a queue pair.

    Attributes:
        flow: its number, counted on from `RunStart.planned`.
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


OUTCOMES = "outcomes.jsonl"
"""The name of the file with what became of the flows; it is locked while a line is added."""


class SentFlow(BaseModel):
    """What the device that sent a flow knows of it, at its end.

    Attributes:
        flow: its number.
        bytes_sent: payload, each byte counted once.
        bytes_unaccounted: the part of it that nobody waits for: its queue pair failed, or its
            program closed it or ended.
        packets_sent: data packets, retransmissions included.
        packets_lost: transmissions that were lost.
        packets_retransmitted: data packets sent again.
        errors: how it failed, if it did.
    """

    flow: int
    bytes_sent: int = 0
    bytes_unaccounted: int = 0
    packets_sent: int = 0
    packets_lost: int = 0
    packets_retransmitted: int = 0
    errors: tuple[str, ...] = ()


class ReceivedFlow(BaseModel):
    """What the device that received a flow knows of it.

    Attributes:
        flow: its number.
        bytes_placed: payload in memory, each packet checked by its iCRC.
    """

    flow: int
    bytes_placed: int = 0


class DeviceOutcome(BaseModel):
    """A line of `raw/outcomes.jsonl`: a device was closed.

    Attributes:
        host: whose device.
        control_bytes: bytes of its control packets on the wire.
        refused: packets that it did not accept, by reason.
        sent: the flows that it sent.
        received: those that it received.
    """

    model_config = ConfigDict(frozen=True)

    host: str
    control_bytes: int = 0
    refused: dict[str, int] = Field(default_factory=dict)
    sent: tuple[SentFlow, ...] = ()
    received: tuple[ReceivedFlow, ...] = ()
