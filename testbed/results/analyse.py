"""Everything that follows a run: metrics, verdict, figures, report, `summary.json`."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.results.summary import Summary


def analyse(run_directory: Path) -> "Summary":
    """Analyse a run from its records: figures, `report.html`, `junit.xml`, last `summary.json`.

    It only reads what the run recorded, so it can be repeated at any time.

    Raises:
        InputError: the directory is not that of a run, or a file in it is damaged.
    """
    # Loading them takes a second, which a command that analyses nothing should not wait for.
    from testbed.results.figures import draw_all  # noqa: PLC0415
    from testbed.results.metrics import flow_tables, summarise  # noqa: PLC0415
    from testbed.results.report import render  # noqa: PLC0415
    from testbed.results.run_data import load_run  # noqa: PLC0415
    from testbed.results.run_directory import RunDirectory  # noqa: PLC0415

    data = load_run(run_directory)
    tables = flow_tables(data)
    summary = summarise(data, tables)
    drawings = draw_all(data, tables, summary)
    RunDirectory(run_directory).write("report.html", render(data, summary, drawings))
    _keep(summary, run_directory)
    return summary


def measure(run_directory: Path) -> "Summary":
    """The same without figures and report, which take longer than all else that follows a run.

    Raises:
        InputError: the directory is not that of a run, or a file in it is damaged.
    """
    from testbed.results.metrics import flow_tables, summarise  # noqa: PLC0415
    from testbed.results.run_data import load_run  # noqa: PLC0415

    data = load_run(run_directory)
    summary = summarise(data, flow_tables(data))
    _keep(summary, run_directory)
    return summary


def _keep(summary: "Summary", run_directory: Path) -> None:
    from testbed.results.junit import junit  # noqa: PLC0415
    from testbed.results.run_directory import SUMMARY, RunDirectory  # noqa: PLC0415

    run = RunDirectory(run_directory)
    run.write("junit.xml", junit(summary))
    run.write(SUMMARY, summary.model_dump_json(indent=2) + "\n")
    run.give_to_user()
