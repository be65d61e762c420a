"""The scenario of a run so far: what was done by hand included, to be saved or to be forked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from testbed.live.stream.writer import RawTail
from testbed.model.faults.record import FaultRecord, replayed_timeline
from testbed.model.operator.replayed import replayed_operator
from testbed.model.own_code import CLASS, OwnCode, recorded_code
from testbed.model.run_files.layout import MANIFEST, RAW
from testbed.model.run_files.manifest import Manifest
from testbed.model.scenario import Scenario
from testbed.model.units import exact_duration, parse_duration
from testbed.results.records import OPERATOR

Rows = Iterable[Mapping[str, Any]]
"""Rows of the table `operator`."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """What has been done in a run.

    Attributes:
        scenario: what is run.
        resolved: the same as JSON, with its topology.
        faults: its faults, those by hand too.
        operator: the rows of the table `operator`.
        t0_ns: its start, on the clock of the faults' records.
        lasted_ns: how long it has lasted.
    """

    scenario: Scenario
    resolved: Mapping[str, Any]
    faults: tuple[FaultRecord, ...]
    operator: tuple[Mapping[str, Any], ...]
    t0_ns: int
    lasted_ns: int

    def as_scenario(
        self, until_ns: int | None = None, duration_ns: int | None = None
    ) -> dict[str, Any]:
        """The scenario that does all this again.

        Args:
            until_ns: without what was done from this time on; None: with all.
            duration_ns: its duration; None: that of the run. Faults end with it, at the latest.
        """
        end_ns = duration_ns or max(self.scenario.duration, self.lasted_ns)
        timeline = replayed_timeline(self.scenario, self.faults, self.t0_ns, until_ns)
        again = {
            **self.resolved,
            "duration": exact_duration(end_ns),
            "timeline": [_within(entry, end_ns) for entry in timeline],
        }
        again.pop("operator", None)
        if self.scenario.programs:  # its commands were for flows of programs
            return again
        flows = [
            f"{src}->{dst}{f'#{lane}' if lane else ''}" for src, dst, lane in self.scenario.flows
        ]
        until_ns = end_ns if until_ns is None else min(until_ns, end_ns)
        operator = replayed_operator(self.scenario, self.operator, flows, until_ns)
        return {**again, "operator": operator} if operator else again


def _within(entry: dict[str, Any], end_ns: int) -> dict[str, Any]:
    """An entry of a timeline that ends with the run, if it would go on."""
    left_ns = end_ns - parse_duration(entry["at"])
    if "for" not in entry or parse_duration(entry["for"]) <= left_ns:
        return entry
    return {key: value for key, value in entry.items() if key != "count"} | {
        "for": exact_duration(left_ns)
    }


def history_of_live_run(
    directory: Path,
    scenario: Scenario,
    faults: Iterable[FaultRecord],
    t0_ns: int,
    lasted_ns: int,
) -> RunHistory:
    """What has been done so far in a run that goes on."""
    manifest = Manifest.model_validate_json((directory / MANIFEST).read_text(encoding="utf-8"))
    with RawTail(directory / RAW, t0_ns, (OPERATOR,)) as tail:
        tail.read()
        columns = tail.rows_before(float("inf")).get(OPERATOR, {})
    lists = {name: values.tolist() for name, values in columns.items()}
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    rows.sort(key=lambda row: row["t"])
    return RunHistory(scenario, manifest.scenario, tuple(faults), tuple(rows), t0_ns, lasted_ns)


def as_files(scenario: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """A scenario of a record as the text of a file, and the files of code that it names.

    Returns:
        The text; the content of each file of code, which belongs beside it, by its name.
    """
    code: dict[str, str] = {}
    transport = recorded_code(scenario["transport"])
    for key, own in transport.items():
        if isinstance(own, OwnCode):
            named = f"{_file_of(own, code)}:{own.name}"
            transport[key] = {CLASS: named, **own.parameters} if own.parameters else named
    content = {**scenario, "transport": transport}
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return text, code


def _file_of(own: OwnCode, code: dict[str, str]) -> str:
    """The path of the file of a class, which is added with those that it imports.

    Where other content has its name, it gets another one; with those that it imports, which keep
    their names, it is in a folder of its own then.
    """
    stem, imported = Path(own.file).stem, own.modules.items()
    for number in count(1):
        after = "" if number == 1 else f"-{number}"
        folder = f"code{after}/" if after and imported else ""
        name = f"{folder}{stem}.py" if folder else f"{stem}{after}.py"
        files = {f"{folder}{module}.py": text for module, text in imported} | {name: own.source}
        if all(code.get(file, text) == text for file, text in files.items()):
            break
    code |= files
    return name
