"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Pcap = Annotated[
    list[str] | None,
    typer.Option("--pcap", metavar="LINK", help="Capture a link, both ways; may be repeated."),
]
NoFigures = Annotated[
    bool,
    typer.Option("--no-figures", help="Neither figures nor report: testbed report makes them."),
]
Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where runs are written.")]
Folder = Annotated[
    str | None,
    typer.Option("--folder", hidden=True, metavar="NAME", help="Instead of the scenario's name."),
]
"""The directory below that of `--results` in which the run's is made: campaigns name it."""
