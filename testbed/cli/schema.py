"""`testbed schema`: JSON Schemas for editors."""

import json
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.screen import stdout
from testbed.results.whole_file import writing


def schema(
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write; default: the project's docs/schema."),
    ] = None,
) -> None:
    """Write the JSON Schemas of scenarios, topologies and results."""
    from testbed.installation import PROJECT
    from testbed.live.stream.records import stream_schema
    from testbed.model.json_schema import scenario_schema, summary_schema, topology_schema

    place = PROJECT / "docs" / "schema" if directory is None else directory
    schemas = {
        "topology": topology_schema(),
        "scenario": scenario_schema(),
        "summary": summary_schema(),
        "stream": stream_schema(),
    }
    for name, content in schemas.items():
        file = place / f"{name}.json"
        with writing("--directory", file):
            place.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        stdout().print(f"wrote {file}")
