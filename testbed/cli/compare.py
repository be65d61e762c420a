"""`testbed compare`: a table, figures and a report of several runs or series."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import Json, Labels, require_labels
from testbed.cli.screen import print_json, stdout
from testbed.model.run_files.layout import REPORT
from testbed.results.whole_file import writing


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Runs, series, or cases of series: SERIES/NUMBER, SERIES/NAME, SERIES/SCENARIO.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="The report, an HTML file."),
    ] = Path("results/comparison/report.html"),
    label: Labels = None,
    as_json: Json = False,
) -> None:
    """Compare runs or series: tables, figures and a report.

    The tables have each run's verdict and missed expectations, and medians with their intervals;
    they say in how many runs a value was measured, and mark significant differences from the first.
    """
    from testbed.cli.comparison import comparison_data, print_comparison
    from testbed.results.report.comparison_report import write_comparison
    from testbed.runs.series import groups_of

    if output.is_dir():
        output /= REPORT
    elif output.suffix != ".html":
        output = output.with_name(f"{output.name}.html")
    labels = label or []
    require_labels(labels, len(runs), "runs or series")
    groups = groups_of(runs, labels)
    with writing("--output", output):
        output.parent.mkdir(parents=True, exist_ok=True)
        rows = write_comparison("Comparison", groups, output)
    if as_json:
        print_json(comparison_data(groups, rows) | {"report": str(output)})
        return
    print_comparison(groups, rows, stdout())
    stdout().print(f"report: {output}")
