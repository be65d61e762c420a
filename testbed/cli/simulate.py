"""`testbed simulate`: an experiment in virtual time, without root, from its file to its report."""

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from testbed.cli.live import Watch, ending_on_ctrl_c, print_address, watch_options
from testbed.cli.run_options import RunOptions, run_options
from testbed.cli.series import make_runs
from testbed.command_options import with_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.live.observing import SimulatedRun
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory


@with_options(run_options, "options")
@with_options(watch_options, "watch")
def simulate(*, options: RunOptions, watch: Watch) -> None:
    """Simulate a scenario and write its report.

    The transport is that of testbed run; the fabric is a model in virtual time. It needs no root,
    and equal seeds give equal results. With --live virtual time goes as fast as the wall clock,
    faults can be injected from the page, and the run ends there or by Ctrl-C. Several scenarios,
    --repeat and --sweep make several runs and compare them in one report. Exit status: 0 as
    expected, 1 data was lost or corrupted or an expectation is not met, 2 wrong input, 4 the run
    cannot be trusted.
    """
    from testbed.runs.job import How

    how = How(options.drawn, options.require_trusted)
    make_runs(options, "simulated", how, watch, partial(watching_simulated, watch))


@contextmanager
def watching_simulated(
    watch: Watch, scenario: "Scenario", directory: "RunDirectory"
) -> "Iterator[SimulatedRun | None]":
    """Watch a run on a simulated fabric during a block, if the options say so."""
    if watch.where is None:
        yield None
        return
    from testbed.live.observing import SimulatedRun
    from testbed.live.serving import serving
    from testbed.live.stream.packets import flow_in_slow_motion
    from testbed.live.stream.writer import STREAM

    stream = directory.path / STREAM
    stream.touch()
    with serving(stream, watch.where) as site:
        print_address(site.address, site.port)
        slow_flow = flow_in_slow_motion(scenario, watch.packets, live=True)
        observer = SimulatedRun(scenario, directory.path, site, slow_flow)
        try:
            with ending_on_ctrl_c(observer.end):
                yield observer
        finally:
            observer.finish()
