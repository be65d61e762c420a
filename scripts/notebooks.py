"""Executes the notebooks of examples/ and writes them back with their outputs: `make notebooks`.

They are executed in an empty directory, where their runs are written and left out. Nothing that
differs from one execution to the next (times, identifiers) is kept.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

EXAMPLES = Path(__file__).parents[1] / "examples"
TIMEOUT_S = 600


def executed(file: Path) -> NotebookNode:
    """A notebook with the outputs of its cells.

    Raises:
        CellExecutionError: a cell raises an error.
    """
    notebook = nbformat.read(file, as_version=4)
    with TemporaryDirectory(prefix="testbed-notebook-") as directory:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=TIMEOUT_S,
            resources={"metadata": {"path": directory}},
            record_timing=False,
        )
        client.execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    return notebook


def main() -> None:
    """Execute the notebooks that are named, or all."""
    files = [Path(name) for name in sys.argv[1:]] or sorted(EXAMPLES.glob("*.ipynb"))
    for file in files:
        print(f"executing {file}", flush=True)
        nbformat.write(executed(file), file)


if __name__ == "__main__":
    main()
