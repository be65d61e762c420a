"""The commands of a run, those by hand too, as the `operator` of a scenario."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S, exact_duration

BY_HAND = "hand"
"""What the table `operator` says of a command that was given while the run went on."""


def replayed_operator(
    scenario: Scenario,
    rows: Iterable[Mapping[str, Any]],
    flows: Sequence[str],
    until_ns: int | None = None,
) -> list[dict[str, Any]]:
    """The commands of a scenario and those by hand, in order of time.

    A replacement, whose two EVs are two rows, and probes are included; what was refused is not.

    Args:
        scenario: what was run.
        rows: the rows of the table `operator`.
        flows: the names of the flows, by their numbers.
        until_ns: the time of the run from which on commands are left out; None: none is.
    """
    planned = [
        (order.at, order.model_dump(mode="json", by_alias=True, exclude_none=True))
        for order in scenario.operator
    ]
    entries = sorted([*planned, *_by_hand(rows, flows)], key=lambda entry: entry[0])
    return [entry for at_ns, entry in entries if until_ns is None or at_ns < until_ns]


def _by_hand(
    rows: Iterable[Mapping[str, Any]], flows: Sequence[str]
) -> Iterable[tuple[int, dict[str, Any]]]:
    replaced: int | None = None
    for row in rows:
        if row["by"] != BY_HAND or row["result"].startswith("refused"):
            continue
        at_ns = round(row["t"] * NS_PER_S)
        entry: dict[str, Any] = {"kind": row["kind"], "at": exact_duration(at_ns)}
        if row["kind"] in {"disable", "enable"}:
            yield at_ns, {**entry, "host": row["host"], "plane": row["plane"]}
        elif row["kind"] != "replace":
            yield at_ns, {**entry, "flow": flows[row["flow"]], "ev": str(row["ev"])}
        elif replaced is None:
            replaced = row["ev"]
        else:
            names = {"ev": str(replaced), "by": str(row["ev"])}
            yield at_ns, {**entry, "flow": flows[row["flow"]], **names}
            replaced = None
