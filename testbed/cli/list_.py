"""`testbed list`: the scenarios and topologies that ship with the project."""

from pathlib import Path

from testbed.cli.options import Json
from testbed.cli.screen import plain_table, print_json, print_table, stdout
from testbed.model.errors import InputError


def list_(as_json: Json = False) -> None:
    """List the scenarios and topologies that ship with the project."""
    from testbed.model.files.catalog import SCENARIOS, TOPOLOGIES

    kinds = {"scenarios": _descriptions(SCENARIOS), "topologies": _descriptions(TOPOLOGIES)}
    if as_json:
        print_json(
            {
                kind: [{"name": name, "description": text} for name, text in descriptions.items()]
                for kind, descriptions in kinds.items()
            }
        )
        return
    for kind, descriptions in kinds.items():
        table = plain_table(kind, "")
        table.columns[1].overflow = "fold"
        for name, text in descriptions.items():
            table.add_row(name, text)
        print_table(table)
        stdout().print()


def _descriptions(directory: Path) -> dict[str, str]:
    """The description of each file by its name; for a wrong file the first problem."""
    from testbed.model.files.catalog import files_in
    from testbed.model.files.reading import read_document

    descriptions = {}
    for name, file in files_in(directory).items():
        try:
            text = str(read_document(file).data.get("description", ""))
        except InputError as error:
            text = f"wrong: {error.problems[0]}"
        descriptions[name] = " ".join(text.split())
    return descriptions
