"""The path of each EV, as a column of tables."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from testbed.model.fabric.addressing import path_of_ev
from testbed.model.flows import flows_recorded
from testbed.model.run_files.run import FlowRecord
from testbed.model.scenario import Scenario

if TYPE_CHECKING:
    import polars as pl


def with_paths(
    scenario: Scenario, frame: "pl.DataFrame", recorded: Iterable[FlowRecord] = ()
) -> "pl.DataFrame":
    """A table with the column `path`, from its columns `flow` and `ev`.

    Of programs only the records know the flows.
    """
    import polars as pl  # noqa: PLC0415 - it takes long

    flows = {flow.number: flow for flow in flows_recorded(scenario, recorded)}
    pairs = frame.select("flow", "ev").unique().rows()
    names = pl.DataFrame(
        [
            (number, ev, path_of_ev(scenario.topology, flow.src, flow.dst, ev).name)
            for number, ev in pairs
            if (flow := flows.get(number)) is not None
        ],
        schema={"flow": frame.schema["flow"], "ev": frame.schema["ev"], "path": pl.String},
        orient="row",
    )
    return frame.join(names, on=["flow", "ev"], how="left", maintain_order="left")
