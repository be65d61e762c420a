"""The process that makes one fork: `python -m testbed.live.fork DIRECTORY STREAM AT_S [code]`.

It simulates `scenario.yaml` of the directory, and compares the fork's event stream with that of the
real run: up to the moment, where both did the same, and from then on. Only with `code` it executes
classes that the scenario has: whoever may write to the directory may have put them there.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from testbed.live.stream.recorded import recorded_stream
from testbed.live.stream.records import Detection, Snapshot, State, StreamRecord, to_line
from testbed.live.stream.run_state import StreamReader
from testbed.live.stream.writer import STREAM
from testbed.model.checks import require_no_code
from testbed.model.errors import TestbedError
from testbed.model.files.scenarios import load_recorded
from testbed.rights import acting_for
from testbed.runs.making import simulate_into

# --------------------------------------------------------------------------------------------------
# The files of a fork, `forks/N` in the run directory: declared once for who writes and who reads.
#
# `Forks` makes the directory with the fork's scenario and record; the process that simulates the
# fork adds its progress, the records of a run, and last the difference.


FORK = "fork.json"
DIFFERENCE = "difference.json"
PROGRESS = "progress"
SCENARIO = "scenario.yaml"
LOG = "fork.log"

CODE = "code"
"""The argument that lets the process execute the classes of the scenario."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class ForkRecord(_Model):
    """The content of `fork.json`.

    Attributes:
        fork: its number.
        at_s: the moment of the change, in seconds from the start.
        change: what was changed, in words.
    """

    fork: int
    at_s: float = 0.0
    change: str = "unknown"


class ComparedPart(_Model):
    """What a part of both runs came to; each pair is (real, fork).

    Attributes:
        seconds: its length, emulated.
        goodput_bps: the mean over time, over all flows together; None if there was no step.
        lost: packets declared lost.
        retransmitted: packets sent again.
        detections_rtt: the first detection of each fault in base RTTs, by the fault's number.
    """

    seconds: float
    goodput_bps: tuple[float | None, float | None]
    lost: tuple[int, int]
    retransmitted: tuple[int, int]
    detections_rtt: tuple[dict[int, float], dict[int, float]]


class Difference(_Model):
    """The content of `difference.json`: both runs up to the moment of the change, and after it.

    Up to the moment both did the same. After it only the time that both have is compared.
    """

    before: ComparedPart
    after: ComparedPart


def main(directory: Path, real: Path, at_s: float, *, allow_code: bool) -> None:
    def progress(_: str, share: float) -> None:
        (directory / PROGRESS).write_text(f"{share:.3f}", encoding="utf-8")

    with acting_for(directory):
        scenario = load_recorded(directory / SCENARIO)
        if not allow_code:
            require_no_code(scenario)
        together = scenario.model_copy(update={"interference": False})
        simulate_into(directory, together, progress=progress)
        fork = [*recorded_stream(directory)]
        (directory / STREAM).write_text("".join(map(to_line, fork)), encoding="utf-8")
        found = difference([*StreamReader(real).new_records()], fork, at_s)
        (directory / DIFFERENCE).write_text(found.model_dump_json(), encoding="utf-8")


def difference(
    real: Iterable[StreamRecord], fork: Iterable[StreamRecord], at_s: float
) -> Difference:
    """Compare both runs before a moment and after it."""
    runs = _Course(real), _Course(fork)
    end_s = min(run.end_s for run in runs)
    return Difference(before=_part(*runs, 0.0, at_s), after=_part(*runs, at_s, end_s))


def _part(real: "_Course", fork: "_Course", begin_s: float, end_s: float) -> ComparedPart:
    times = begin_s, end_s
    return ComparedPart(
        seconds=max(end_s - begin_s, 0.0),
        goodput_bps=(real.goodput_bps(*times), fork.goodput_bps(*times)),
        lost=(real.grown("lost", *times), fork.grown("lost", *times)),
        retransmitted=(real.grown("retransmitted", *times), fork.grown("retransmitted", *times)),
        detections_rtt=(real.detections(*times), fork.detections(*times)),
    )


class _Course:
    """What a stream tells of its flows, step by step."""

    def __init__(self, records: Iterable[StreamRecord]) -> None:
        self.end_s = 0.0
        self._steps: list[tuple[float, float, dict[str, int]]] = []
        self._detections: list[Detection] = []
        self._base_rtt_s = 1.0
        goodput: dict[int, float] = {}
        counts: dict[str, dict[int, int]] = {"lost": {}, "retransmitted": {}}
        for record in records:
            if isinstance(record, Snapshot):
                self._base_rtt_s = record.base_rtt_s
            elif isinstance(record, Detection):
                self._detections.append(record)
            elif isinstance(record, State):
                for flow, state in record.flows.items():
                    if state.goodput_bps is not None:
                        goodput[flow] = state.goodput_bps
                    for name, by_flow in counts.items():
                        value = getattr(state, name)
                        if value is not None:
                            by_flow[flow] = value
                sums = {name: sum(by_flow.values()) for name, by_flow in counts.items()}
                self._steps.append((record.t, sum(goodput.values()), sums))
                self.end_s = record.t

    def goodput_bps(self, begin_s: float, end_s: float) -> float | None:
        """The mean between two times; None if no step is between them."""
        rates = [rate for t, rate, _ in self._steps if begin_s < t <= end_s]
        return sum(rates) / len(rates) if rates else None

    def grown(self, name: str, begin_s: float, end_s: float) -> int:
        """By how much a count grew between two times."""
        return self._count(name, end_s) - self._count(name, begin_s)

    def _count(self, name: str, at_s: float) -> int:
        return next((sums[name] for t, _, sums in reversed(self._steps) if t <= at_s), 0)

    def detections(self, begin_s: float, end_s: float) -> dict[int, float]:
        """The first detection of each fault between two times, in base RTTs."""
        first: dict[int, float] = {}
        for detection in self._detections:
            if begin_s < detection.t <= end_s:
                first.setdefault(detection.fault, detection.after_s / self._base_rtt_s)
        return first


if __name__ == "__main__":
    try:
        given = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
        main(*given, allow_code=sys.argv[4:] == [CODE])
    except TestbedError as error:
        sys.exit(str(error))
