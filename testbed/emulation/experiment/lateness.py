"""Ends a run with `--stop-if-late` once the machine was so late that it cannot be trusted."""

from pathlib import Path

from testbed.model.errors import LateError
from testbed.model.faults.record import FAULTS, FaultRecord
from testbed.model.run_files.health import HealthSample
from testbed.model.run_files.layout import HEALTH
from testbed.model.units import NS_PER_S
from testbed.results.analysis.trust.lateness import lasting_lateness


class LatenessMonitor:
    """Reads the lateness that the processes of a run record while it goes on."""

    def __init__(self, directory: Path, t0_ns: int, base_rtt_ns: int) -> None:
        self._directory = directory
        self._t0_ns = t0_ns
        self._base_rtt_ns = base_rtt_ns
        self._samples: list[HealthSample] = []
        self._read_bytes = 0

    def check(self) -> None:
        """Read the samples that were recorded since the last call.

        Raises:
            LateError: a process was so late that no later sample can make the run trusted.
        """
        with (self._directory / HEALTH).open("rb") as file:
            file.seek(self._read_bytes)
            lines = [line for line in file if line.endswith(b"\n")]
        self._read_bytes += sum(map(len, lines))
        samples = (HealthSample.model_validate_json(line) for line in lines)
        self._samples += (sample for sample in samples if sample.t_ns >= self._t0_ns)
        records = (self._directory / FAULTS).read_text(encoding="utf-8").splitlines()
        faults = [FaultRecord.from_line(line) for line in records]
        for _, reason in lasting_lateness(self._samples, faults, self._base_rtt_ns):
            after_s = (self._samples[-1].t_ns - self._t0_ns) / NS_PER_S
            raise LateError(f"ended after {after_s:.0f} s, as it could not be trusted: {reason}")
