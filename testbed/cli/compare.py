"""`testbed compare`: runs, or the cases of series, beside one another."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.comparing import show_comparison
from testbed.cli.options import Json
from testbed.cli.screen import say_json, stdout
from testbed.model.errors import InputError


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Directories of runs, or of series (--repeat)."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The report; figures beside it.")
    ] = Path("results/comparison/report.html"),
    as_json: Json = False,
) -> None:
    """Compare runs: medians, how sure they are, differences, figures.

    Differences are from the first.
    """
    from testbed.campaign.series import groups_of
    from testbed.results.report.comparison_report import write_comparison
    from testbed.results.run_directory import give_to_user

    groups = groups_of(runs)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        rows = write_comparison("Comparison", groups, output)
    except OSError as error:
        expected = f"a file to write ({error.strerror})"
        raise InputError.of("--output", str(output), expected) from None
    for one in (output.parent, output, *output.parent.glob("figures/*")):
        give_to_user(one)
    if as_json:
        names = [group.name for group in groups]
        say_json({"groups": names, "rows": [asdict(row) for row in rows], "report": str(output)})
        return
    show_comparison(groups, rows, stdout())
    stdout().print(f"report: {output}")
