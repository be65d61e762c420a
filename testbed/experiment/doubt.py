"""Whether a run that goes on can be trusted at all any more, for one that is not worth its end."""

from pathlib import Path

from testbed.model.errors import LateError
from testbed.model.faults.record import FAULTS, FaultRecord
from testbed.model.run_files.health import HealthSample
from testbed.model.run_files.layout import HEALTH
from testbed.results.analysis.lateness import late_for_good


class Doubt:
    """Looks at what the processes of a run write down about how late they are."""

    def __init__(self, directory: Path, t0_ns: int, base_rtt_ns: int) -> None:
        self._directory = directory
        self._t0_ns = t0_ns
        self._base_rtt_ns = base_rtt_ns
        self._samples: list[HealthSample] = []
        self._read = 0

    def look(self) -> None:
        """Look at what is new.

        Raises:
            LateError: something was so late that nothing to come makes up for it.
        """
        with (self._directory / HEALTH).open("rb") as file:
            file.seek(self._read)
            lines = [line for line in file if line.endswith(b"\n")]
        self._read += sum(map(len, lines))
        new = [HealthSample.model_validate_json(line) for line in lines]
        self._samples += (one for one in new if one.t_ns >= self._t0_ns)
        recorded = (self._directory / FAULTS).read_text().splitlines()
        faults = [FaultRecord.from_line(line) for line in recorded]
        found = next(iter(late_for_good(self._samples, faults, self._base_rtt_ns)), None)
        if found is not None:
            _, reason = found
            after_s = (self._samples[-1].t_ns - self._t0_ns) / 1e9
            raise LateError(f"ended after {after_s:.0f} s, as it could not be trusted: {reason}")
