"""One emulated run, by `testbed run` beside the process that wants it."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.results.run_directory import RunDirectory
from testbed.rights import acting_for
from testbed.runs.job import error_of
from testbed.runs.local import LocalExecutor
from testbed.runs.options import NO_FIGURES
from testbed.runs.plan import planned_run, slowed

if TYPE_CHECKING:
    from testbed.model.scenario import Scenario


def emulate(scenario: "Scenario", results: Path, slower: float) -> RunDirectory:
    """Make an emulated run, analysed, without figures (root); its scenario is not kept beside it.

    Args:
        scenario: what is run; its name is that of the directory of its runs.
        results: the directory of all runs; the run gets one of its own below its name.
        slower: how many times longer all its times are.

    Raises:
        MachineError: this machine cannot run it; the message says what is missing.
        RunFailedError: it did not finish.
    """
    planned = planned_run(
        slowed(scenario, slower), "emulated", scenario.name, options=(NO_FIGURES,)
    )
    with acting_for(results):
        executor = LocalExecutor(results)
        try:
            record = executor.submit(planned.job).result()
        finally:
            executor.stop()
        if record.run is None:
            raise error_of(record, results / planned.job.log)
        file = results / planned.job.file
        for left in (file, results / planned.job.log):
            left.unlink(missing_ok=True)
        with suppress(OSError):  # others are made below these results
            file.parent.rmdir()
    return RunDirectory(results / record.run)
