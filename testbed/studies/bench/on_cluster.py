"""Parts of the bench that only simulate, measured on the workers of a cluster.

Each is measured in a process of its own: a worker calls several functions at a time.
"""

import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed import interpreter
from testbed.model.errors import RunFailedError, TestbedError
from testbed.studies.bench.measure import Measurement, Setting, not_measured
from testbed.studies.bench.parts import PARTS, load

_KEPT_LINES = 3


def figures_from(
    pool: Executor,
    parts: Iterable[str],
    repeats: int,
    results: Path,
    progress: Callable[[str], None],
) -> dict[str, list[Measurement]]:
    """Measure parts on the workers of a cluster; one that fails ends no other.

    Args:
        pool: the workers; they have the directory of results under the same path.
        parts: the names of the parts.
        repeats: of each measurement.
        results: where pictures are written.
        progress: called with each part that is measured.

    Returns:
        The figures of each part, in the order of the parts.
    """
    under_way = {
        pool.submit(
            measure, name, min(repeats, PARTS[name].most_repeats), str(results.resolve())
        ): name
        for name in parts
    }
    measured = {}
    for future in as_completed(under_way):
        name = under_way[future]
        try:
            measured[name] = [*map(_figure, json.loads(future.result()))]
        except (TestbedError, OSError) as error:
            measured[name] = [not_measured(Measurement(PARTS[name].what, "", ()), str(error))]
        progress(f"{name}: measured")
    return {name: measured[name] for name in under_way.values()}


def measure(name: str, repeats: int, results: str) -> str:
    """Measure a part here; the fields of its figures as JSON.

    Raises:
        RunFailedError: it did not finish.
    """
    command = interpreter.python("-m", __name__, name, str(repeats), results)
    done = interpreter.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode:
        lines = " ".join(done.stderr.strip().splitlines()[-_KEPT_LINES:])
        raise RunFailedError(f"{name}: exit status {done.returncode}: {lines}")
    return str(done.stdout)


def _figure(fields: dict[str, Any]) -> Measurement:
    return Measurement(**fields | {"samples": tuple(fields["samples"])})


def _main(name: str, repeats: str, results: str) -> None:
    setting = Setting(int(repeats), Path(results), lambda _: None)
    sys.stdout.write(json.dumps([asdict(figure) for figure in load(name)(setting)]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
