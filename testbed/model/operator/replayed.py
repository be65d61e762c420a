"""The commands of a run, those by hand too, as the `operator` of a scenario."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S, exact_duration

BY_HAND = "hand"
"""What the table `operator` says of a command that was given while the run went on."""

_ASKED: Final = "asked, within "


def asked(within_ns: int) -> str:
    """What the table `operator` says when EVs are probed, of each: the deadline of the batch."""
    return f"{_ASKED}{exact_duration(within_ns)}"


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
) -> Iterator[tuple[int, dict[str, Any]]]:
    done = [row for row in rows if row["by"] == BY_HAND and not row["result"].startswith("refused")]
    yield from _probes((row for row in done if row["result"].startswith(_ASKED)), flows)
    replaced: int | None = None
    for row in done:
        if row["kind"] == "probe":
            continue
        at_ns, entry = _timed(row["t"], row["kind"])
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


def _probes(
    rows: Iterable[Mapping[str, Any]], flows: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The batches of probes, from the rows that say when each EV's probe was asked for."""
    for (t, flow, result), batch in groupby(rows, itemgetter("t", "flow", "result")):
        at_ns, entry = _timed(t, "probe")
        evs, within = [str(row["ev"]) for row in batch], result.removeprefix(_ASKED)
        yield at_ns, {**entry, "flow": flows[flow], "ev": evs, "within": within}


def _timed(t: float, kind: str) -> tuple[int, dict[str, Any]]:
    at_ns = max(round(t * NS_PER_S), 0)
    return at_ns, {"kind": kind, "at": exact_duration(at_ns)}
