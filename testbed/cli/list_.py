"""`testbed list`: the scenarios and topologies that can be named."""

from pathlib import Path

from testbed.cli.options import Json
from testbed.cli.screen import print_json, print_table, stdout


def list_(as_json: Json = False) -> None:
    """List the scenarios and topologies that come with the project."""
    from rich.table import Table

    from testbed.files.catalog import SCENARIOS, TOPOLOGIES

    kinds = {"scenarios": _described(SCENARIOS), "topologies": _described(TOPOLOGIES)}
    if as_json:
        print_json(kinds)
        return
    for kind, found in kinds.items():
        table = Table(kind, box=None, pad_edge=False)
        table.columns[0].style = "cyan"
        table.add_column(overflow="fold")
        for one in found:
            table.add_row(one["name"], one["description"])
        print_table(table)
        stdout().print()


def _described(directory: Path) -> list[dict[str, str]]:
    """Name and description of every file; of one that cannot be read, what is wrong with it."""
    from testbed.files.catalog import files_in
    from testbed.files.documents import read_document
    from testbed.model.errors import InputError

    found = []
    for name, file in files_in(directory).items():
        try:
            text = str(read_document(file).data.get("description", ""))
        except InputError as error:
            text = f"wrong: {error.problems[0]}"
        found.append({"name": name, "description": " ".join(text.split())})
    return found
