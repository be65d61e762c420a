"""What being watched does to a run: pairs of runs, of which one has three clients.

The same link failure with and without `--live`, in turn, first one and then the other first. The
clients read the event stream as a page does, but draw nothing: a browser is not part of the
testbed.
"""

import http.client
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from testbed.emulation.experiment.experiment import Experiment
from testbed.live.emulated import EmulatedRun
from testbed.live.serving import Listening
from testbed.live.stream.writer import STREAM
from testbed.model.files.scenarios import load_scenario
from testbed.model.run_files.health import PAGE_SERVER, WATCHER, watching_shares
from testbed.model.scenario import Scenario
from testbed.results.analysis.estimates import MIN_SAMPLES, estimate
from testbed.results.analysis.trust.lateness import WATCHING_DEGRADED
from testbed.results.run_directory import RunDirectory, making_run
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import Child, call, spawn
from testbed.studies.bench.emulated import with_dead_link
from testbed.studies.bench.measure import (
    Measurement,
    Setting,
    at_least,
    at_most,
    no_target,
    not_measured,
)

CLIENTS = 3

SAME_WITHIN_PERCENT = 3.0
"""Being watched changes nothing if the interval of the difference lies within this, or has 0."""

_STARTS_S = 10.0
_ENDS_S = 20.0
_COMPARED = ("detection", "stall", "goodput")


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """What is compared of a run.

    Attributes:
        verdict: whether it can be trusted.
        figures: detection and stall in base RTTs, goodput as a share of what is attainable; by
            name. What was not measured is missing.
        cpu_percent: of a core, by the watcher and by the page's server; empty without clients.
        unread: records of the stream that a client has not read, of all clients.
    """

    verdict: str
    figures: dict[str, float]
    cpu_percent: dict[str, float]
    unread: int = 0


Pair = tuple[WatchedRun, WatchedRun]
"""A run without clients, and the same with clients."""


def watched(setting: Setting) -> list[Measurement]:
    """Make pairs of runs, each with another link that fails, and compare them."""
    return figures_of(make_pairs(setting, range(1, setting.repeats + 1)))


def make_pairs(setting: Setting, seeds: Sequence[int]) -> list[Pair]:
    """Make a pair of runs for each seed.

    Raises:
        RunFailedError: a run was not finished.
    """
    scenario = load_scenario("link-failure")
    pairs = []
    for number, seed in enumerate(seeds, 1):
        setting.progress(f"pair {number}/{len(seeds)}")
        changed = with_dead_link(scenario, seed)
        changed = changed.model_copy(update={"duration": scenario.duration})
        runs = {has_clients: WatchedRun("", {}, {}) for has_clients in (False, True)}
        for has_clients in (seed % 2 == 0, seed % 2 == 1):
            values = call(
                _making(changed, setting.results, has_clients=has_clients),
                title="the run",
                isolated=False,  # Polars starts threads there, not here
            )
            runs[has_clients] = WatchedRun(**values)
        pairs.append((runs[False], runs[True]))
    return pairs


def figures_of(pairs: Sequence[Pair]) -> list[Measurement]:
    """Compare the runs of each pair."""
    figures = [figure for name in _COMPARED for figure in _difference(name, pairs)]
    alike = [alone.verdict == seen.verdict for alone, seen in pairs]
    most = WATCHING_DEGRADED * 100
    for process in (PAGE_SERVER, WATCHER):
        used = [seen.cpu_percent.get(process, math.inf) for _, seen in pairs]
        figures.append(at_most(f"{process}, of a core", "%", used, most, every=True))
    return [
        *figures,
        at_least("same verdict as without clients", "", alike, 1, every=True),
        at_most("records that a client missed", "", [seen.unread for _, seen in pairs], 0),
    ]


def _difference(name: str, pairs: Sequence[Pair]) -> Iterator[Measurement]:
    """The relative differences of a figure, and whether their interval says that there is none."""
    both = [(alone.figures.get(name), seen.figures.get(name)) for alone, seen in pairs]
    percent = [
        (seen / alone - 1) * 100
        for alone, seen in both
        if alone and seen is not None and math.isfinite(alone) and math.isfinite(seen)
    ]
    yield no_target(f"{name}, change by being watched", "%", percent)
    low_name = f"{name}, ends of the 95% interval of the change"
    holds = at_least(f"{name}: interval has 0, or within {SAME_WITHIN_PERCENT:g}%", "", (), 1)
    if len(percent) < len(pairs):
        yield not_measured(holds, f"measured in {len(percent)} of {len(pairs)} pairs only")
        return
    if len(percent) < MIN_SAMPLES:
        yield not_measured(holds, f"{len(percent)} pairs; an interval needs {MIN_SAMPLES}")
        return
    change = estimate(percent)
    yield no_target(low_name, "%", (change.low, change.high))
    yield Measurement(holds.name, "", (float(is_same(change.low, change.high)),), at_least=1)


def is_same(low_percent: float, high_percent: float) -> bool:
    """Whether the interval of a difference includes 0, or lies within what counts as none."""
    within = max(abs(low_percent), abs(high_percent)) <= SAME_WITHIN_PERCENT
    return low_percent <= 0 <= high_percent or within


def _making(
    scenario: Scenario, results: Path, *, has_clients: bool
) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        from testbed.emulation.experiment.outside import run_experiment  # noqa: PLC0415
        from testbed.results.analyse import analyse  # noqa: PLC0415
        from testbed.runs.result import Result  # noqa: PLC0415 - Polars starts threads

        nobody: AbstractContextManager[list[int]] = nullcontext([])
        with (
            making_run(results, "bench-watched", scenario.seed) as run,
            _clients(scenario, run) if has_clients else nobody as unread,
        ):
            run_experiment(Experiment(scenario, run.path), lambda _what, _done: None)
        summary = analyse(run.path, drawn=False)
        fault, flows = summary.faults[0], summary.flows
        goodput = [flow.before_fraction for flow in flows if flow.before_fraction is not None]
        times = {"detection": fault.detection, "stall": fault.stall}
        figures = {name: value.rtt for name, value in times.items() if value is not None}
        if goodput:
            figures["goodput"] = sum(goodput) / len(goodput)
        shares = watching_shares(Result(run.path).data.health_during)
        return {
            "verdict": summary.verdict,
            "figures": figures,
            "cpu_percent": {process: share * 100 for process, share in shares.items()},
            "unread": sum(unread),
        }

    return make


@contextmanager
def _clients(scenario: Scenario, run: RunDirectory) -> Iterator[list[int]]:
    """Watch the run that is made within the block, and have clients read its stream.

    Yields a list that has, after the block, how many records each client has not read.
    """
    unread: list[int] = []
    watching = EmulatedRun(scenario, run.path, Listening(), _refuse, lambda: None)
    watcher = watching.start(run.logs)
    clients: list[Child] = []
    try:
        (message,) = watcher.receive(_STARTS_S)
        clients += (
            spawn(_reading(message["address"]), title="a client", isolated=False)
            for _ in range(CLIENTS)
        )
        yield unread
        watcher.send({"finish": True})
        read = [client.result(timeout_s=_ENDS_S) for client in clients]
        watcher.ends_within(_ENDS_S)
        records = len((run.path / STREAM).read_bytes().splitlines())
        unread += (records - count for count in read)
    finally:
        for process in (*clients, watcher):
            process.kill()
            process.close()


def _reading(address: str) -> Callable[[Channel], int]:
    """Read the event stream to its end, a batch at a time, and count its records."""

    def read(_channel: Channel) -> int:
        url = urlsplit(address)
        connection = http.client.HTTPConnection(url.netloc)
        connection.request("GET", f"{url.path}events")
        answer = connection.getresponse()
        count = 0
        while content := answer.read1():
            count += content.count(b"\ndata: ")
            time.sleep(_BETWEEN_BATCHES_S)
        return count

    return read


_BETWEEN_BATCHES_S = 0.1


def _refuse(_method: str, _path: str, _body: str) -> tuple[int, Any]:
    return HTTPStatus.CONFLICT, {"error": "the bench only watches"}
