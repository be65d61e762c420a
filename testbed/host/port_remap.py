"""How long a NIC needs until its queue pairs leave a port that has failed."""

from collections.abc import Iterator

from testbed.mrc import NEVER


class PortRemap:
    """Holds back the failures of a host's ports for a time; their return counts at once.

    A NIC moves all EVs of a failed port to others, which takes real ones seconds (MRC paper,
    section 3). Until then the queue pairs go on sending into the port.

    Attributes:
        deadline_ns: when the next failure is due; `NEVER` if none is held back.
    """

    def __init__(self, delay_ns: int) -> None:
        """Hold failures back for a delay in emulated ns; 0: not at all."""
        self._delay_ns = delay_ns
        self._due_ns: dict[int, int] = {}
        self.deadline_ns: int = NEVER

    def holds_back(self, plane: int, *, up: bool, now_ns: int) -> bool:
        """Note a change of the port of a plane; whether queue pairs learn of it later."""
        self._due_ns.pop(plane, None)
        is_held = not up and self._delay_ns > 0
        if is_held:
            self._due_ns[plane] = now_ns + self._delay_ns
        self._update()
        return is_held

    def due(self, now_ns: int) -> Iterator[int]:
        """Yield the planes whose ports' failures are due, each once."""
        for plane in [plane for plane, due_ns in self._due_ns.items() if due_ns <= now_ns]:
            del self._due_ns[plane]
            yield plane
        self._update()

    def _update(self) -> None:
        self.deadline_ns = min(self._due_ns.values(), default=NEVER)
