"""The parts of a soak: how each went, and their tables."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.model.errors import ExitStatus
from testbed.model.run_files.layout import SUMMARY
from testbed.runs.job import JobRecord

MUST_BE_TRUSTED = frozenset({"chaos-long", "clustermapper-long"})
"""They show that nothing leaks and nobody is accused, for which the machine must do nothing else.
Of the others a degraded run is enough."""

HEADINGS = ("", "tries", "seconds", "verdict", "bytes sent", "lost", "in error", "growth", "why")
FAULT_HEADINGS = (
    "scenario",
    "faults",
    "first EV out, RTT",
    "stall, RTT",
    "recovery, RTT",
    "packets lost",
    "lost after detection",
)
SCREEN = "{:24} {:>5} {:>7} {:10} {:>14} {:>6} {:>8} {:>7}  {}"


@dataclass(frozen=True, slots=True)
class Part:
    """How one part of the soak went.

    Attributes:
        name: a scenario's, or MATRIX.
        fine: whether all was as expected, in a run that can be trusted as far as it must.
        tries: how often it was run; more than once if it could not be trusted before.
        seconds: how long the last try took.
        verdict: that of the last try.
        why: what was not as expected, and why a run is not trusted.
        disturbed: whether the machine disturbed it so much that it shows too little.
        bytes_sent: payload.
        bytes_damaged: payload lost or corrupted.
        qps_in_error: flows of which a message failed.
        growth: how much the memory of the process that grew most did; None if not measured.
        code: the version of the code that was tested.
        runs: the directories of its runs, in the order of the tries that came to an end.
        faults: of a scenario with faults of links: how many, and the worst effects of any, as a row
            of FAULT_HEADINGS.
    """

    name: str
    fine: bool
    tries: int
    seconds: int
    verdict: str
    why: str
    disturbed: bool = False
    bytes_sent: int | None = None
    bytes_damaged: int | None = None
    qps_in_error: int | None = None
    growth: float | None = None
    code: str = ""
    runs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """As a row of the table."""
        counts = (self.bytes_sent, self.bytes_damaged, self.qps_in_error)
        shown = ("" if count is None else f"{count:,}" for count in counts)
        growth = "" if self.growth is None else f"{self.growth:.1%}"
        return (
            self.name,
            f"{self.tries}",
            f"{self.seconds}",
            self.verdict,
            *shown,
            growth,
            self.why,
        )


def part_of_run(name: str, record: JobRecord, tries: int, directory: Path) -> Part:
    """How a scenario's run went."""
    part = Part(name, False, tries, round(record.seconds), "FAILED", "")
    if record.run is None:
        disturbed = record.status == ExitStatus.UNTRUSTED
        return replace(part, why=" ".join(record.message.split()), disturbed=disturbed)
    summary = json.loads((directory / record.run / SUMMARY).read_text(encoding="utf-8"))
    disturbed = _is_disturbed(name, record.status, summary["verdict"])
    integrity = summary["integrity"]
    failed = [check for check in summary["expectations"] if not check["holds"]]
    reasons = [
        f"{check['figure']} {_shown(check['value'])}, not {check['bound']}" for check in failed
    ]
    return replace(
        part,
        fine=record.status == ExitStatus.AS_EXPECTED and not disturbed,
        verdict=summary["verdict"],
        why="; ".join([*reasons, *summary["reasons"]]),
        disturbed=disturbed,
        bytes_sent=integrity["bytes_sent"],
        bytes_damaged=integrity["bytes_lost"] + integrity["bytes_corrupted"],
        qps_in_error=summary["qps_in_error"],
        growth=max((process["growth"] for process in summary["memory"]), default=None),
        faults=_worst(summary["faults"]),
    )


def _worst(faults: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The worst effects that faults of links had on the flows that they affected."""
    effective = [fault for fault in faults if fault["flows_affected"] and ">" in fault["places"][0]]
    if not effective:
        return ()
    times = (
        _most(effective, f"{figure}_rtt", "{:.2f}") for figure in ("detection", "stall", "recovery")
    )
    lost = sum(fault["packets_lost"] for fault in effective)
    residual = _most(effective, "residual_loss", "{:.3%}")
    return (f"{len(effective)}", *times, f"{lost:,}", residual)


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _most(faults: Sequence[dict[str, Any]], figure: str, form: str) -> str:
    """The largest value of a figure over the faults that have it, and how many have not."""
    values = [fault[figure] for fault in faults if fault[figure] is not None]
    missing = len(faults) - len(values)
    most = form.format(max(values)) if values else "none"
    return f"{most} (none: {missing})" if values and missing else most


def _is_disturbed(name: str, status: int, verdict: str) -> bool:
    """Whether the machine disturbed a run so much that it shows too little."""
    if status == ExitStatus.AS_EXPECTED:
        return name in MUST_BE_TRUSTED and verdict != "trusted"
    return status == ExitStatus.UNTRUSTED


def last_line(text: str) -> str:
    """The last line of what a command printed."""
    return (text.strip().splitlines() or ["no output"])[-1]


def table_of(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
