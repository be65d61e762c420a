"""Names of the files and directories below a run directory."""

RAW = "raw"
"""Where processes record while the run lasts; removed once the tables are made of it."""

START = "start.json"
"""When an emulated run starts (`RunStart`), beside the raw records."""

PCAPS = "pcaps"
"""Packets of captured links, a file for each link."""

PCAP_SUFFIX = ".pcapng"

LOGS = "logs"
"""Logs of all processes."""

PROGRAMS = "programs"
"""What the programs of a scenario print, a file for each host."""

FIGURES = "figures"
"""Figures as PNG, and as SVG if somebody asked."""

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


def alone_directory(job: str) -> str:
    """The directory of the run of a job alone, which is that of a run."""
    return f"alone/{job}"


def table_file(table: str) -> str:
    return f"{table}.parquet"


def capture_file(link: str) -> str:
    return f"{PCAPS}/{link}{PCAP_SUFFIX}"
