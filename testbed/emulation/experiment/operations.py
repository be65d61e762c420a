"""What programs report of their operations, as lines of text (docs/programs.md).

    begin NAME STEP [BYTES]
    end NAME STEP

An operation lasts from its first line to its second, as they are read here.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from testbed.model.scenario import Job
from testbed.model.units import NS_PER_S
from testbed.results.records import Recorder

_MOST_LINE: Final = 512
_MOST_SHOWN: Final = 80
_MOST_STEP: Final = (1 << 31) - 1
_MOST_BYTES: Final = 1 << 50
_MOST_NAMES: Final = 100
_MOST_OPEN: Final = 10_000


class _Begun(NamedTuple):
    start_ns: int
    size: int


class ReportedOperations:
    """Records the operations of the programs of a job; times in ns."""

    def __init__(
        self, recorder: Recorder, hosts: int, job: Job, begun: Callable[[str, int, int], None]
    ) -> None:
        """Record nothing yet.

        Args:
            recorder: of the table of operations.
            hosts: the number of programs of the job.
            job: the job.
            begun: called with name, step and time when a host begins an operation.
        """
        self._recorder = recorder
        self._job = job
        self._tell = begun
        self._hosts = hosts
        self._partial: dict[str, bytes] = {}
        self._open: dict[tuple[str, str, int], _Begun] = {}
        self._names: set[str] = set()
        self.refused = Counter[str]()
        """How many lines of each host are none of these."""
        self.first_refused: dict[str, str] = {}
        """The first one of each host, or its beginning."""

    def take(self, host: str, data: bytes, now_ns: int) -> None:
        """Take in what a host's program has written by a time."""
        *lines, rest = (self._partial.get(host, b"") + data).split(b"\n")
        self._partial[host] = rest[: _MOST_LINE + 1]
        for line in lines:
            text = line[: _MOST_LINE + 1].decode("utf-8", "replace")
            if len(line) > _MOST_LINE or not self._line(host, text.split(), now_ns):
                self.refused[host] += 1
                self.first_refused.setdefault(host, text[:_MOST_SHOWN])

    def _line(self, host: str, words: list[str], now_ns: int) -> bool:
        """Act on a line; returns whether it is one of those that are documented."""
        match words:
            case ["begin", name, step]:
                return self._begin(host, name, step, "0", now_ns)
            case ["begin", name, step, size]:
                return self._begin(host, name, step, size, now_ns)
            case ["end", name, step] if step.isdecimal():
                begun = self._open.pop((host, name, int(step)), None)
                if begun is not None:
                    kind = self._job.label(name)
                    row = (now_ns, begun.start_ns, host, kind, int(step), begun.size, self._hosts)
                    self._recorder.append(*row)
                return begun is not None
        return not words

    def _begin(self, host: str, name: str, step: str, size: str, now_ns: int) -> bool:
        numbers = (step, _MOST_STEP), (size, _MOST_BYTES)
        if not all(text.isdecimal() and int(text) <= most for text, most in numbers):
            return False
        is_known = name in self._names or len(self._names) < _MOST_NAMES
        if not is_known or len(self._open) >= _MOST_OPEN or not name.isprintable():
            return False
        self._names.add(name)
        self._open[host, name, int(step)] = _Begun(now_ns, int(size))
        self._tell(self._job.label(name), int(step), now_ns)
        return True

    def open_ones(self, t0_ns: int) -> list[dict[str, Any]]:
        return [
            {
                "host": host,
                "kind": self._job.label(name),
                "number": step,
                "start_s": (at - t0_ns) / NS_PER_S,
            }
            for (host, name, step), (at, _) in self._open.items()
        ]
