"""The times that a scenario's file has: on which clock, and how long in each unit."""

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.model.errors import Remark, few
from testbed.model.files.documents import Document
from testbed.model.part import times_in
from testbed.model.scenario import Scenario
from testbed.model.units import EMULATED, TimeBase, exact_duration, is_in_rtts, show_number

_MANY = 10_000


@dataclass(frozen=True, slots=True)
class WrittenTime:
    """A time that the file or an option gives.

    Attributes:
        key: its key path.
        text: as it is written.
        clock: the clock that it is in.
        real_ns: at full speed, in ns.
        emulated_ns: during an emulated run, in ns.
        rtts: in base RTTs.
    """

    key: str
    text: str
    clock: TimeBase
    real_ns: float
    emulated_ns: int
    rtts: float

    def __str__(self) -> str:
        """It in words, such as `4 s: emulated, 30.6 RTT, 400 us real`."""
        shown = f"{self.rtts:,.0f}" if self.rtts >= _MANY else show_number(self.rtts)
        rtts, real = f"{shown} RTT", f"{exact_duration(round(self.real_ns))} real"
        emulated = f"{exact_duration(self.emulated_ns)} emulated"
        if is_in_rtts(self.text):
            return f"{self.text} ({emulated}, {real})"
        if self.clock is EMULATED:
            return f"{self.text} {self.clock.name} ({rtts}, {real})"
        return f"{self.text} {self.clock.name} ({rtts}, {emulated})"


def written_times(scenario: Scenario, document: Document) -> Iterator[WrittenTime]:
    """The times of a scenario that its document gives; those of the topology are left out."""
    rtt = scenario.topology.round_trip
    for key, time_ns, clock in times_in(scenario):
        text = document.texts.get(key)
        if text is None or key.startswith("topology."):
            continue
        dilation = scenario.topology.dilation
        emulated_ns = time_ns if clock is EMULATED else round(time_ns * dilation)
        yield WrittenTime(
            key, text, clock, emulated_ns / dilation, emulated_ns, emulated_ns / rtt.emulated_ns
        )


def time_remarks(scenario: Scenario, document: Document) -> Iterator[Remark]:
    """Times that stretch with the dilation beside times that do not."""
    times = [time for time in written_times(scenario, document) if time.emulated_ns]
    emulated = [time for time in times if time.clock is EMULATED]
    in_rtts = [time.key for time in emulated if is_in_rtts(time.text)]
    others = [time.key for time in emulated if not is_in_rtts(time.text)]
    if document.texts.get("duration") is None:
        others.insert(0, "duration (by default)")
    if in_rtts and others:
        what = f"in base RTTs, but not {few(others)}: at another dilation they no longer fit"
        yield Remark(few(in_rtts), f"{what}; write all of them in RTT")
