"""Names of the files and directories below a run directory."""

from pydantic import BaseModel, ConfigDict

RAW = "raw"
"""Where processes record while the run lasts; removed once the tables are made of it."""

START = "start.json"
"""When an emulated run starts (`RunStart`), beside the raw records."""

PCAPS = "pcaps"
"""Packets of captured links, a file for each link."""

PCAP_SUFFIX = ".pcapng"

LOGS = "logs"
"""Logs of all processes."""

FIGURES = "figures"
"""Figures as PNG and SVG."""

MANIFEST = "manifest.json"
"""What the run was made of (`Manifest`); the first file that is written."""

RUN = "run.json"
"""The outcome of the run (`RunRecord`); written when all has been recorded."""

HEALTH = "health.jsonl"
"""A line a second for each process (`HealthSample`)."""

CONTROLLER_PLAN = "controller.json"
"""What the controller was started with."""

REPORT = "report.html"
JUNIT = "junit.xml"

SUMMARY = "summary.json"
"""The results of the run (`Summary`); the last file that is written."""


def table_file(table: str) -> str:
    """The file of a table."""
    return f"{table}.parquet"


def capture_file(link: str) -> str:
    """The file of the packets of a captured link."""
    return f"{PCAPS}/{link}{PCAP_SUFFIX}"


# --------------------------------------------------------------------------------------------------
# What is written beside the raw records while a run lasts: its start, and flows of programs.


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
