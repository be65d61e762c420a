"""A scenario in virtual time, and what is measured of it."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.results.analysis.metrics import flow_tables, summarise
from testbed.results.run_data import load_run
from testbed.sim import simulate


def measured(scenario: Scenario) -> Summary:
    """Simulate it and return its summary."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place, "run")
        directory.mkdir()
        simulate(scenario, directory)
        data = load_run(directory)
        return summarise(data, flow_tables(data))


def writes(
    topology: object,
    pairs: Sequence[tuple[str, str]],
    faults: Sequence[dict[str, Any]] = (),
    *,
    duration: str,
    both_ways: bool = False,
    message_size: str = "256 KiB",
    transport: object = None,
    seed: int = 1,
) -> Scenario:
    """Pairs that write without a pause, and a timeline."""
    return Scenario.model_validate(
        {
            "name": "measured",
            "seed": seed,
            "topology": topology,
            "duration": duration,
            "workload": {
                "kind": "write_bw",
                "pairs": list(pairs),
                "message_size": message_size,
                "bidirectional": both_ways,
            },
            "timeline": list(faults),
            "transport": transport or {"kind": "mrc"},
        }
    )
