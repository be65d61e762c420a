"""What a run reports as its progress: how much data arrives, and what is lost."""

from testbed.model.units import NS_PER_S, show_duration, show_rate


class TrafficProgress:
    """Describes how a run goes on: the rate at which data arrives, and what is lost."""

    def __init__(self, what: str, duration_ns: int) -> None:
        """Begin a run of this duration; `what` names its step, such as `running`."""
        self._what = what
        self._duration = show_duration(duration_ns)
        self._time_ns = self._bytes = 0

    def describe(self, time_ns: int, arrived_bytes: int, lost: int | None) -> str:
        """The run in words, such as `running: 3 of 10 s, 76.8 Mbit/s arrive, 12 packets dropped`.

        Args:
            time_ns: of the run.
            arrived_bytes: that arrived at hosts so far, headers included.
            lost: packets of all kinds that links have dropped so far; None if not all of them
                are counted yet.
        """
        passed_ns, new_bytes = time_ns - self._time_ns, arrived_bytes - self._bytes
        if passed_ns <= 0:
            return self._what
        self._time_ns, self._bytes = time_ns, arrived_bytes
        rate = show_rate(new_bytes * 8 * NS_PER_S / passed_ns)
        time = f"{show_duration(time_ns)} of {self._duration}"
        losses = "" if lost is None else f", {lost:,} packets dropped"
        return f"{self._what}: {time}, {rate} arrive at the hosts{losses}"
