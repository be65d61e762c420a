"""Everything that follows a run: metrics, verdict, figures, report, `summary.json`."""

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.rights import acting_for

if TYPE_CHECKING:
    from testbed.model.summary import Summary


def analyse(
    run_directory: Path, *, drawn: bool = True, svg: bool = False, require_trusted: bool = False
) -> "Summary":
    """Analyse a run from its records: figures, `report.html`, `junit.xml`, last `summary.json`.

    It only reads what the run recorded, so it can be repeated at any time. Where a run was killed
    before its tables were made of its raw records, they are made first.

    Args:
        run_directory: the run's.
        drawn: whether to make figures and report, which take longer than the rest of the analysis.
        svg: whether figures, also those in the report, are drawn as SVG too.
        require_trusted: whether a degraded run is an error in `junit.xml`.

    Raises:
        InputError: the directory is not that of a run, or a file in it is damaged.
    """
    # Loading them takes a second, which a command that analyses nothing should not wait for.
    from testbed.model.run_files.layout import JUNIT, REPORT, RUN, SUMMARY  # noqa: PLC0415
    from testbed.results.analysis.metrics import flow_tables, summarise  # noqa: PLC0415
    from testbed.results.records import collect  # noqa: PLC0415
    from testbed.results.report.junit import junit  # noqa: PLC0415
    from testbed.results.run_data import load_run, naming_damage  # noqa: PLC0415
    from testbed.results.run_directory import RunDirectory  # noqa: PLC0415

    with acting_for(run_directory):
        if (run_directory / RUN).is_file():
            with naming_damage(run_directory):
                collect(run_directory)
        data = load_run(run_directory)
        tables = flow_tables(data)
        summary = summarise(data, tables)
        run = RunDirectory(run_directory)
        if drawn:
            from testbed.results.report.figures import draw_all  # noqa: PLC0415
            from testbed.results.report.run_report import render  # noqa: PLC0415

            drawings = draw_all(data, tables, summary, svg=svg)
            run.write(REPORT, render(data, summary, drawings))
        run.write(JUNIT, junit(summary, require_trusted=require_trusted))
        run.write(SUMMARY, summary.model_dump_json(indent=2) + "\n")
    return summary
